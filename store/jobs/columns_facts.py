"""What is known of the columns of a table of jobs, and of the groups of its jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torchyard.contract.columns import Column, Scalar
from torchyard.contract.job import JobState

Cells: TypeAlias = Mapping[Column, Scalar]
"""The values of columns that a job has."""


@dataclass(frozen=True)
class KnownColumn:
    """A column that some jobs have a value of."""

    name: str
    jobs: int
    """How many."""
    differs: bool
    """Whether the jobs have different values, or some have none."""


@dataclass(frozen=True)
class KnownColumns:
    """The columns of the newest jobs of a list."""

    columns: Sequence[KnownColumn]
    jobs: int
    """How many jobs were read."""


@dataclass(frozen=True)
class Spread:
    """The finite numbers that jobs have in a column."""

    count: int
    mean: float
    std: float | None
    """The standard deviation of a sample; None of a single number, and where it is beyond all floats."""
    min: float
    max: float


@dataclass(frozen=True)
class JobGroupFacts:
    """The jobs of a list that have the same value of a column; None: those without one."""

    value: str | None
    name: str | None
    """Of a sweep."""
    by_state: Mapping[JobState, int]
    columns: Mapping[Column, Spread]
    """Of the columns that were asked for, those in which some of the jobs have numbers."""

    @property
    def key(self) -> str:
        """Names the group among those of the list."""
        return group_key(self.value)


@dataclass(frozen=True)
class JobGroups:
    """The jobs of a list by the values of a column."""

    groups: Sequence[JobGroupFacts]
    is_complete: bool
    """Whether these are all groups, of all jobs of the list."""


@dataclass(frozen=True)
class Order:
    """By which column a list is sorted."""

    column: Column
    reverse: bool


@dataclass(frozen=True)
class TableCursor:
    """A position in a list that is arranged anew for each page."""

    index: int
    """How many jobs came before."""
    job_id: str
    """The last of them."""


def group_key(value: str | None) -> str:
    """Returns the key of the group of a value."""
    return "-" if value is None else f"={value}"
