"""Parses large bodies of requests in a process of its own."""
