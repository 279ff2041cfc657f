"""Reads which options a program declares, from its source. It is never run."""
