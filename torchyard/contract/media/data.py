"""The data of items that are no pictures: what each kind has, checked as a stranger's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import itertools
import json
import math
from typing import Annotated, Any

from torchyard.contract.media.kinds import CLASS_LENGTH, DATA_BYTES, MOST_BINS, MOST_CLASSES, MOST_COLUMNS, MediaKind
from torchyard.contract.wire.codec import Record, at_most, cut_at, json_number

NOTE_LENGTH = 500


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _count(value: float) -> float:
    if _finite(value) < 0:
        raise ValueError("must not be below 0")
    return whole(value)


def whole(value: float) -> float:
    """Returns the number, without a fraction if it has none: so it takes less room as JSON."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


class _CellCheck:
    """Returns a value of a table as JSON has it. Raises ValueError."""

    def __call__(self, value: Any) -> str | int | float | bool | None:
        if isinstance(value, float):
            return json_number(value)
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**63 else str(value)[:CLASS_LENGTH]
        raise ValueError("a value of a table is a text, a number, true, false or null")

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Tells the description of the API of which types the values are."""
        return handler(str | int | float | bool | None)


cell = _CellCheck()
Count = Annotated[float, _count]
Edge = Annotated[float, _finite]
ClassName = Annotated[str, at_most(CLASS_LENGTH)]


@dataclass(frozen=True, kw_only=True)
class _Data(Record):
    note: Annotated[str, cut_at(NOTE_LENGTH)] | None = None
    """What was left out; None if that is nothing."""


@dataclass(frozen=True, kw_only=True)
class Histogram(_Data):
    """A histogram: the count of values between adjacent edges. It has one more edge than counts."""

    edges: Annotated[list[Edge], at_most(MOST_BINS + 1)]
    counts: Annotated[list[Count], at_most(MOST_BINS)]


@dataclass(frozen=True, kw_only=True)
class Table(_Data):
    columns: Annotated[list[ClassName], at_most(MOST_COLUMNS)]
    rows: list[list[Annotated[Any, cell]]]


@dataclass(frozen=True, kw_only=True)
class Text(_Data):
    text: str
    expected: str | None = None
    """What the text should be, if the run says it."""


@dataclass(frozen=True, kw_only=True)
class Confusion(_Data):
    """A confusion matrix: `matrix[t][p]` counts the samples of class `t` predicted as class `p`."""

    classes: Annotated[list[ClassName], at_most(MOST_CLASSES)]
    matrix: Annotated[list[list[Count]], at_most(MOST_CLASSES)]


_KINDS: dict[MediaKind, type[Histogram | Table | Text | Confusion]] = {
    MediaKind.HISTOGRAM: Histogram,
    MediaKind.TABLE: Table,
    MediaKind.TEXT: Text,
    MediaKind.CONFUSION: Confusion,
}


def media_data(kind: MediaKind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data of an item as it is stored. Raises ValueError."""
    found = _KINDS[kind].from_dict(values)
    _check_shape(found)
    data = found.to_dict()
    if (size := size_of(data)) > DATA_BYTES:
        raise ValueError(f"its data has {size} bytes: it may have {DATA_BYTES}")
    return data


def size_of(data: Mapping[str, Any]) -> int:
    """Returns the bytes of the data as JSON."""
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())


def _check_shape(data: Histogram | Table | Text | Confusion) -> None:
    match data:
        case Histogram():
            edges = data.edges
            if len(edges) != len(data.counts) + 1 or any(a > b for a, b in itertools.pairwise(edges)):
                raise ValueError("a histogram has one edge more than counts, in order")
        case Table():
            if any(len(row) != len(data.columns) for row in data.rows):
                raise ValueError("each row of a table has a value for each column")
        case Confusion():
            size = len(data.classes)
            if len(data.matrix) != size or any(len(row) != size for row in data.matrix):
                raise ValueError("a confusion matrix has a row and a column for each class")
        case Text():
            pass
