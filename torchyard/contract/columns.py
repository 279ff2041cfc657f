"""The columns of a table of jobs: values of their specs, metrics, labels and notes, each by its name."""

from dataclasses import dataclass
import re
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import Field

from torchyard.contract.labels import LABEL_KEY
from torchyard.contract.wording import allowing

MOST_COLUMNS = 30
"""The most columns that one request asks for."""
MOST_CHARACTERS = 200
"""The most characters of a value: a longer text is cut."""
NOTES = "notes"
"""The column of the first line of the notes."""

_SEGMENT = "[A-Za-z_][A-Za-z0-9_/-]{0,99}"
_PATH = rf"{_SEGMENT}(\.{_SEGMENT}){{0,15}}"
# Sorted by: told from the other orders of lists by its dot or colon.
_DOTTED = rf"{_SEGMENT}(\.{_SEGMENT}){{1,15}}"
_METRIC = r"metric:[^\x00-\x1f\x7f]{1,200}:(best|last|min|max)"
_LABEL = f"label:{LABEL_KEY[1:-1]}"
_WORDS = (
    "a path into the job spec such as config.optimizer.lr, metric:KEY:best (or last, min, max), label:KEY, or notes"
)

COLUMN = allowing(f"^({_PATH}|{_METRIC}|{_LABEL})$", _WORDS)
"""The pattern of a column's name."""
SORTED = allowing(f"^-?({_DOTTED}|{_METRIC}|{_LABEL})$", f"an order of lists, or {_WORDS} with a `.` or a `:`")
"""The pattern of a column's name by which jobs are sorted."""
LABEL_GROUP = allowing(f"^{_LABEL}$", "label:KEY, where KEY is that of a label")
GROUP_BY = allowing(f"^({_LABEL}|sweep|{_DOTTED})$", "label:KEY, sweep, or a path into the job spec with a dot")
"""The pattern of what jobs are grouped by."""

ColumnName = Annotated[str, Field(max_length=300, pattern=COLUMN)]
SortColumn = Annotated[str, Field(max_length=301, pattern=SORTED)]
GroupBy = Annotated[str, Field(max_length=300, pattern=GROUP_BY)]

Scalar: TypeAlias = str | int | float | bool | None
"""A value of a column. NaN and infinities are texts, as in all JSON of the service."""
Figure = Literal["best", "last", "min", "max"]


@dataclass(frozen=True)
class SpecColumn:
    """A value of the spec. One that is no text, number or truth value is its JSON."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class MetricColumn:
    """A figure of a metric: its value at the best checkpoint, the newest, the least or the greatest."""

    key: str
    figure: Figure


@dataclass(frozen=True)
class LabelColumn:
    """The value of a label."""

    key: str


@dataclass(frozen=True)
class NotesColumn:
    """The first line of the notes."""


Column: TypeAlias = SpecColumn | MetricColumn | LabelColumn | NotesColumn


def parse_column(name: str) -> Column:
    """Parses a name that matches `COLUMN`."""
    kind, colon, rest = name.partition(":")
    if not colon:
        return NotesColumn() if name == NOTES else SpecColumn(tuple(name.split(".")))
    if kind == "label":
        return LabelColumn(rest)
    key, _, figure = rest.rpartition(":")
    return MetricColumn(key, cast("Figure", figure))


def spec_name(path: tuple[str, ...]) -> str | None:
    """Returns the name of the column of a path of a spec; None if no column has it."""
    name = ".".join(path)
    return name if re.fullmatch(_PATH, name) and all("." not in part for part in path) else None
