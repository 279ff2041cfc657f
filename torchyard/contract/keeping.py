"""Which files of its working folder a job keeps, or a request stores: paths and patterns."""

from typing import Annotated

from pydantic import AfterValidator, Field

MOST_KEEP = 32
"""Patterns of `keep`, at most, and paths of one request to keep."""


def _inside(pattern: str) -> str:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError(f"{pattern!r} must be inside the working folder: relative, without `..`")
    if not set(pattern.split("/")) - {"", "."}:
        raise ValueError(f"{pattern!r} names no file: `**` is all that the program writes")
    return pattern


KeptPattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_inside)]
"""A path or a pattern of files and folders below the working folder."""
