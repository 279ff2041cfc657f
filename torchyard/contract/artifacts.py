"""Files that a job left, by their paths: artifacts below `artifacts` of its run directory, and kept files of its
working folder."""

from torchyard.contract.text import printable

DEEPEST = 16
"""Names in a path, at most."""
MOST_PATH_BYTES = 1000
"""Bytes of a path, at most."""
KEPT = "./"
"""Begins the stored path of a file of the working folder: no artifact has such a path."""


def is_artifact_path(text: str) -> bool:
    """Returns whether the text may be the path of an artifact: relative, with `/`, without `..` or control characters.

    Nor has it characters that change the direction of text, or that UTF-8 lacks.
    """
    if printable(text) != text or len(text.encode()) > MOST_PATH_BYTES:
        return False
    names = text.split("/")
    return len(names) <= DEEPEST and not {"", ".", ".."} & {*names}
