"""Runs the tests: collects them once, and forks the processes that run them."""
