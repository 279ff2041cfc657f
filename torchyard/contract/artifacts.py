"""Files that a job left, by their paths: artifacts below `artifacts` of its run directory, and kept files of its
working folder."""

from typing import Annotated

from pydantic import AfterValidator, Field

from torchyard.contract.text import printable

DEEPEST = 16
"""Names in a path, at most."""
MOST_PATH_BYTES = 1000
"""Bytes of a path, at most."""
KEPT = "./"
"""Begins the stored path of a file of the working folder: no artifact has such a path."""
MOST_KEEP = 32
"""Patterns of `keep`, at most, and paths of one request to keep."""


def is_artifact_path(text: str) -> bool:
    """Returns whether the text may be the path of an artifact: relative, with `/`, without `..` or control characters.

    Nor has it characters that change the direction of text, or that UTF-8 lacks.
    """
    if printable(text) != text or len(text.encode()) > MOST_PATH_BYTES:
        return False
    names = text.split("/")
    return len(names) <= DEEPEST and not {"", ".", ".."} & {*names}


def _inside(pattern: str) -> str:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError(f"{pattern!r} must be inside the working folder: relative, without `..`")
    if not set(pattern.split("/")) - {"", "."}:
        raise ValueError(f"{pattern!r} names no file: `**` is all that the program writes")
    return pattern


KeptPattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_inside)]
"""A path or a pattern of files and folders below the working folder."""
