"""Artifacts: files that a job left below `artifacts` of its run directory, by their paths there."""

from torchyard.contract.text import printable

DEEPEST = 16
"""Names in a path, at most."""
MOST_PATH_BYTES = 1000
"""Bytes of a path, at most."""


def is_artifact_path(text: str) -> bool:
    """Returns whether the text may be the path of an artifact: relative, with `/`, without `..` or control characters.

    Nor has it characters that change the direction of text, or that UTF-8 lacks.
    """
    if printable(text) != text or len(text.encode()) > MOST_PATH_BYTES:
        return False
    names = text.split("/")
    return len(names) <= DEEPEST and not {"", ".", ".."} & {*names}
