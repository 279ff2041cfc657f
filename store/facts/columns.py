"""What is known of the columns of a table of jobs, and of its groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torchyard.contract.columns import Column, Scalar

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
