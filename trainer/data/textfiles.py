"""Reads samples from text files: one file per class, CSV, JSON lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import csv
from dataclasses import dataclass
import io
import json
import logging
import math
from pathlib import Path
from typing import Any

from torchyard.contract.errors import DataError
from torchyard.models import textlines

logger = logging.getLogger(__name__)

Tell = Callable[[str], None]
_Record = tuple[int, Any, Any]
"""The line of a record, counted from 1, its text and its label."""


@dataclass(frozen=True)
class Sample:
    """A text, the name of its class, and the file that it is from."""

    text: str
    label: str
    file: Path


def class_files(folder: Path, *, by_suffix: bool | None = None) -> dict[str, Path]:
    """Returns the file of each class, named by the file's stem, or by its suffix if all stems are equal.

    `by_suffix`: whether another folder's classes are named by suffix; None: decide here. Raises DataError.
    """
    try:
        files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    if not files:
        raise DataError(f"{folder} has no file; it needs a text file for each class")
    for file in files:
        if file.suffix.lower() in _READERS:
            raise DataError(f"{file} is a table among files of one class each. A table alone can be the source")
    classes: dict[str, Path] = {}
    for file in files:
        name = file.suffix[1:] if (named_by_suffix(files) if by_suffix is None else by_suffix) else file.stem
        if name in classes:
            raise DataError(f"{file} and {classes[name].name} are both of the class {name}")
        classes[name] = file
    return classes


def named_by_suffix(files: Sequence[Path]) -> bool:
    """Returns whether the classes are named by the suffixes of their files: all stems are equal."""
    return len(files) > 1 and len({file.stem for file in files}) == 1 and all(file.suffix for file in files)


def read_classes(files: Mapping[str, Path], tell: Tell = logger.warning) -> list[Sample]:
    """Returns a sample for each line that is not blank, class by class. `tell`: see `decoded`. Raises DataError."""
    samples: list[Sample] = []
    for label, file in files.items():
        found = [Sample(text, label, file) for text in textlines.texts_in(textlines.content(file, tell))]
        if not found:
            raise DataError(f"{file} is empty")
        samples += found
    return samples


def read_table(file: Path, tell: Tell = logger.warning) -> list[Sample]:
    """Returns the samples of a CSV or JSON-lines file whose text is not blank. Raises DataError.

    `tell` gets a sentence for all that the file does not say itself: a guess, and what is left out.
    """
    if not file.exists():
        raise DataError(f"there is no {file}")
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise DataError(f"{file} is not a folder, and its name does not end in {', '.join(_READERS)}")
    read = [_sample(file, line, text, label) for line, text, label in reader(file, textlines.content(file, tell))]
    samples = [sample for sample in read if sample.text]
    if not samples:
        raise DataError(f"{file} is empty")
    if len(samples) < len(read):
        tell(f"{file}: {len(read) - len(samples):,} of {len(read):,} texts are blank, and are left out")
    return samples


def _csv(file: Path, content: str) -> Iterator[_Record]:
    rows = csv.reader(io.StringIO(content, newline=""), strict=True)
    line = 1
    try:
        header = next(rows, [])
        for name in ("text", "label"):
            if header.count(name) != 1:
                raise DataError(f"{file}, line 1: must have one column {name}; it has {', '.join(header) or 'nothing'}")
        text, label = header.index("text"), header.index("label")
        while True:
            line = rows.line_num + 1  # where the row begins; it may have many lines
            row = next(rows, None)
            if row is None:
                return
            if row and len(row) != len(header):
                raise DataError(
                    f"{file}, line {line}: has {len(row)} values, the header {len(header)}; "
                    "a text with a comma must stand in quotes"
                )
            if row:
                yield line, row[text], row[label]
    except csv.Error as error:
        raise DataError(f"{file}, line {line}: {error}") from error


def _json_lines(file: Path, content: str) -> Iterator[_Record]:
    for number, line in enumerate(io.StringIO(content, newline=None), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{file}, line {number}: is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise DataError(f"{file}, line {number}: is not an object with text and label")
        for name in ("text", "label"):
            if name not in record:
                raise DataError(f"{file}, line {number}: has no {name}")
        yield number, record["text"], record["label"]


_READERS: dict[str, Callable[[Path, str], Iterator[_Record]]] = {
    ".csv": _csv,
    ".json": _json_lines,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}


def _sample(file: Path, line: int, text: Any, label: Any) -> Sample:
    where = f"{file}, line {line}"
    if not isinstance(text, str):
        raise DataError(f"{where}: text is not a string")
    is_number = (isinstance(label, int) and not isinstance(label, bool)) or (
        isinstance(label, float) and math.isfinite(label)
    )
    if not is_number and not isinstance(label, str):
        raise DataError(f"{where}: label is neither a string nor a number")
    sample = Sample(text.strip(), str(label).strip(), file)
    if not sample.label:
        raise DataError(f"{where}: label is empty")
    try:
        (sample.text + sample.label).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: holds half of a surrogate pair, which is not a character") from error
    return sample
