"""Recognizes what a program says of wrong arguments, as argparse and click do before they exit with code 2."""

import re

EXIT_CODE = 2
_SAID = re.compile(r"(?:^|: )error: \S", re.IGNORECASE)


def said(text: str, *, exit_code: int | None) -> str | None:
    """Returns the last line of `text` that says which argument is wrong. None if there is none, or another code."""
    if exit_code != EXIT_CODE:
        return None
    return next((line.strip() for line in reversed(text.splitlines()) if _SAID.search(line)), None)
