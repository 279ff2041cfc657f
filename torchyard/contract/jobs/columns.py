"""The columns of a table of jobs: values of their specs, metrics, labels and notes, each by its name."""

from dataclasses import dataclass
import re
from typing import Annotated, Literal, TypeAlias, cast, get_args

from pydantic import Field

from torchyard.contract.bounds import LABEL_KEY
from torchyard.contract.jobs.filters import JobSort
from torchyard.contract.wire.wording import allowing

MOST_COLUMNS = 30
"""The most columns that one request asks for."""
MOST_CHARACTERS = 200
"""The most characters of a value: a longer text is cut."""
NOTES = "notes"
"""The column of the first line of the notes."""
SWEEP = "sweep"
"""The column of the id of the sweep whose trial a job is."""

_SEGMENT = "[A-Za-z_][A-Za-z0-9_/-]{0,99}"
_PATH = rf"{_SEGMENT}(\.{_SEGMENT}){{0,15}}"
# Sorted by: told from the other orders of lists by its dot or colon.
_DOTTED = rf"{_SEGMENT}(\.{_SEGMENT}){{1,15}}"
_METRIC = r"metric:[^\x00-\x1f\x7f]{1,200}:(best|last|min|max)"
_LABEL = f"label:{LABEL_KEY[1:-1]}"
_WORDS = (
    "a path into the job spec such as config.optimizer.lr, metric:KEY:best (or last, min, max), label:KEY, notes, sweep"
)

COLUMN = allowing(f"^({_PATH}|{_METRIC}|{_LABEL})$", _WORDS)
"""The pattern of a column's name."""
SORTED = allowing(
    f"^({'|'.join(get_args(JobSort))}|-?({_DOTTED}|{_METRIC}|{_LABEL}))$",
    f"one of {', '.join(get_args(JobSort))}, or the name of a column that has a dot or a colon, also with a minus",
)
"""The pattern of how a list of jobs is sorted: an order of lists, or a column."""
GROUP_BY = allowing(f"^({_LABEL}|sweep|{_DOTTED})$", "label:KEY, sweep, or a path into the job spec with a dot")
"""The pattern of what jobs are grouped by."""

ColumnName = Annotated[str, Field(max_length=300, pattern=COLUMN)]
Sort = Annotated[str, Field(max_length=301, pattern=SORTED)]
GroupBy = Annotated[str, Field(max_length=300, pattern=GROUP_BY)]
GroupKey = Annotated[str, Field(max_length=201, pattern=allowing(r"^(=[^\x00]*|-)$", "the key of a group"))]

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


@dataclass(frozen=True)
class SweepColumn:
    """The id of the sweep whose trial it is."""


Column: TypeAlias = SpecColumn | MetricColumn | LabelColumn | NotesColumn | SweepColumn
_ALONE: dict[str, Column] = {NOTES: NotesColumn(), SWEEP: SweepColumn()}


def parse_column(name: str) -> Column:
    """Parses a name that matches `COLUMN`, or `GROUP_BY`."""
    kind, colon, rest = name.partition(":")
    if not colon:
        return _ALONE.get(name) or SpecColumn(tuple(name.split(".")))
    if kind == "label":
        return LabelColumn(rest)
    key, _, figure = rest.rpartition(":")
    return MetricColumn(key, cast("Figure", figure))


def spec_name(path: tuple[str, ...]) -> str | None:
    """Returns the name of the column of a path of a spec; None if no column has it."""
    name = ".".join(path)
    return name if re.fullmatch(_PATH, name) and all("." not in part for part in path) else None
