"""Reads files of texts."""

import codecs
from collections.abc import Callable
import io
import logging
from pathlib import Path
import re

from torchyard.contract.errors import DataError

logger = logging.getLogger(__name__)

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16's, which it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""The encodings of files that begin with a byte order mark."""
_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""A character of UTF-8 that has several bytes."""


def content(file: Path, tell: Callable[[str], None] = logger.warning) -> str:
    """Returns the text of a file, as `decoded` does. Raises DataError."""
    try:
        return decoded(file.read_bytes(), str(file), tell)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error


def decoded(written: bytes, name: str, tell: Callable[[str], None] = logger.warning) -> str:
    """Returns bytes as text: in the encoding of their byte order mark, in UTF-8, or where nothing is UTF-8 in cp1252.

    `tell` gets a sentence about cp1252, which is a guess. Raises DataError for a wrong byte in UTF-8, and for NUL.
    """
    mark = next((mark for mark in _MARKS if written.startswith(mark)), None)
    encoding = "utf-8" if mark is None else _MARKS[mark]
    if encoding == "utf-8":
        written = written.removeprefix(codecs.BOM_UTF8)
    try:
        text = written.decode(encoding)
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        if mark is not None or _SEQUENCE.search(written):
            raise DataError(
                f"{name}, line {line}: the byte 0x{written[error.start]:02x} is not {encoding.upper()}, in which the "
                "file is written: correct the line, or save the whole file as UTF-8"
            ) from None
        text = written.decode("cp1252", errors="replace")
        tell(f"{name} is not UTF-8 (line {line}) and is read as cp1252: if it is not, save it as UTF-8")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{name}, line {line}: has a NUL, so it is not a file of text: save texts as UTF-8")
    return text


def texts_in(whole: str, *, strip: bool = True) -> list[str]:
    """Returns a text for each line that is not blank."""
    return [
        line.strip() if strip else line.removesuffix("\n") for line in io.StringIO(whole, newline=None) if line.strip()
    ]


def lines(file: Path, *, strip: bool = True) -> list[str]:
    """Returns the texts that a file has to predict, one a line. Raises DataError."""
    return lines_of(content(file), str(file), strip=strip)


def lines_of(whole: str, name: str, *, strip: bool = True) -> list[str]:
    """Returns the texts to predict in the content of a file. Raises DataError if there is none."""
    found = texts_in(whole, strip=strip)
    if not found:
        raise DataError(f"{name} has no text: each line is one")
    return found
