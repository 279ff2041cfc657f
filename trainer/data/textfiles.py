"""Reads samples from text files: one file per class, CSV, JSON lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import csv
from dataclasses import dataclass
import io
import json
import logging
import math
from pathlib import Path
import re
from typing import Any

from torchyard.contract.bundles.shards import is_hidden
from torchyard.contract.errors import DataError
from torchyard.models import textlines
from trainer.data.splits import TEST, TRAIN, VALIDATION

logger = logging.getLogger(__name__)

Tell = Callable[[str], None]
_Record = tuple[str, Any, Any]
"""Where a record is, counted from 1, its text and its label."""
_LONGEST_FIELD = 1 << 30
_ARRAY = re.compile(r"\s*\[\s*\{")
_NAMES = {",": "comma", "\t": "tab"}


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
        files = sorted(file for file in folder.iterdir() if file.is_file() and not is_hidden(file.name))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    if not files:
        raise DataError(f"{folder} has no file; it needs a text file for each class")
    for file in files:
        if file.suffix.lower() in _READERS:
            raise DataError(f"{file} is a table among files of one class each: name the table itself as the source")
    classes: dict[str, Path] = {}
    for file in files:
        name = file.suffix[1:] if (named_by_suffix(files) if by_suffix is None else by_suffix) else file.stem
        if name in classes:
            raise DataError(f"{file} and {classes[name].name} are both of the class {name}")
        classes[name] = file
    words = {name.casefold() for name in classes}
    if TRAIN in words and words & {*VALIDATION, TEST}:
        raise DataError(
            f"{folder} has files named as parts of a split, which are no classes: {', '.join(classes)}. Put a file for "
            "each class into train/ and into val/, or one table with all texts and labels alone"
        )
    return classes


def named_by_suffix(files: Sequence[Path]) -> bool:
    """Returns whether the classes are named by the suffixes of their files: all stems are equal."""
    return len(files) > 1 and len({file.stem for file in files}) == 1 and all(file.suffix for file in files)


def read_classes(files: Mapping[str, Path], tell: Tell = logger.warning) -> list[Sample]:
    """Returns a sample for each line that is not blank, class by class. `tell`: see `decoded`. Raises DataError."""
    samples: list[Sample] = []
    for label, file in files.items():
        new = [Sample(text, label, file) for text in textlines.texts_in(textlines.content(file, tell))]
        if not new:
            raise DataError(f"{file} is empty")
        samples += new
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
    read = [_sample(file, *record) for record in reader(file, textlines.content(file, tell))]
    samples = [sample for sample in read if sample.text]
    if not samples:
        raise DataError(f"{file} is empty")
    if len(samples) < len(read):
        tell(f"{file}: {len(read) - len(samples):,} of {len(read):,} texts are blank, and are left out")
    return samples


def _csv(file: Path, content: str, *, delimiter: str = ",") -> Iterator[_Record]:
    csv.field_size_limit(_LONGEST_FIELD)  # of the whole process, which reads tables here alone
    rows = csv.reader(io.StringIO(content, newline=""), strict=True, delimiter=delimiter)
    line = 1
    try:
        header = next(rows, [])
        text, label = _columns(header, f"{file}, line 1")
        while True:
            line = rows.line_num + 1  # where the row begins; it may have many lines
            row = next(rows, None)
            if row is None:
                return
            if row and len(row) != len(header):
                raise DataError(
                    f"{file}, line {line}: has {len(row)} values, the header {len(header)}; "
                    f"a text with a {_NAMES[delimiter]} must stand in quotes"
                )
            if row:
                yield f"line {line}", row[text], row[label]
    except csv.Error as error:
        quotes = 'a text with quotes stands in quotes, with each of its own twice: "a ""fine"" film"'
        raise DataError(f"{file}, line {line}: {error}; {quotes}") from error


def _tsv(file: Path, content: str) -> Iterator[_Record]:
    return _csv(file, content, delimiter="\t")


def _columns(header: Sequence[str], where: str) -> tuple[int, int]:
    """Returns where the texts and the labels are among the names. Raises DataError."""
    columns: list[int] = []
    for name in ("text", "label"):
        numbers = [number for number, own in enumerate(header) if own == name]
        numbers = numbers or [number for number, own in enumerate(header) if own.strip().casefold() == name]
        if len(numbers) != 1:
            raise DataError(
                f"{where}: must have one {name}; it has {', '.join(header) or 'nothing'}: rename what has the {name}s"
            )
        columns += numbers
    return columns[0], columns[1]


def _json(file: Path, content: str) -> Iterator[_Record]:
    """Yields the records of JSON lines, or of one array of JSON."""
    for where, record in _json_array(file, content) if _ARRAY.match(content) else _json_lines(file, content):
        if not isinstance(record, dict):
            raise DataError(f"{file}, {where}: is not an object with text and label")
        names = list(record)
        text, label = _columns(names, f"{file}, {where}")
        yield where, record[names[text]], record[names[label]]


def _json_lines(file: Path, content: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(io.StringIO(content, newline=None), start=1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{file}, line {number}: is not JSON: {error}") from error


def _json_array(file: Path, content: str) -> Iterator[tuple[str, Any]]:
    try:
        records = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not an array of JSON: {error}") from error
    return ((f"record {number}", record) for number, record in enumerate(records, start=1))


_READERS: dict[str, Callable[[Path, str], Iterator[_Record]]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
}


def _sample(file: Path, at: str, text: Any, label: Any) -> Sample:
    where = f"{file}, {at}"
    if not isinstance(text, str):
        raise DataError(f"{where}: text is not a string")
    if isinstance(label, bool):
        label = str(label).lower()  # as JSON writes it
    is_number = isinstance(label, int) or (isinstance(label, float) and math.isfinite(label))
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
