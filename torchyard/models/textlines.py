"""Reads files of texts."""

import io
import logging
from pathlib import Path

from torchyard.contract.errors import DataError

logger = logging.getLogger(__name__)


def content(file: Path) -> str:
    """Returns the text of a file in UTF-8, or else in cp1252. Raises DataError."""
    try:
        return decoded(file.read_bytes(), str(file))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def decoded(written: bytes, name: str) -> str:
    """Returns bytes in UTF-8, or else in cp1252, as text."""
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        logger.info("%s is not UTF-8 (line %d): reading it as cp1252, unknown bytes are replaced", name, line)
        return written.decode("cp1252", errors="replace")


def texts_in(whole: str, *, strip: bool = True) -> list[str]:
    """Returns a text for each line that is not blank."""
    return [
        line.strip() if strip else line.removesuffix("\n") for line in io.StringIO(whole, newline=None) if line.strip()
    ]


def lines(file: Path, *, strip: bool = True) -> list[str]:
    """Returns the texts that a file has to predict, one a line. Raises DataError."""
    return lines_of(content(file), str(file), strip=strip)


def lines_of(whole: str, name: str, *, strip: bool = True) -> list[str]:
    """Returns the texts to predict in the content of a file. Raises DataError if there is none, or no text."""
    if "\0" in whole:
        raise DataError(f"{name} is not a file of text")
    found = texts_in(whole, strip=strip)
    if not found:
        raise DataError(f"{name} has no text: each line is one")
    return found
