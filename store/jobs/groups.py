"""The jobs of a list by the values of a column, with how many there are and what numbers they have."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
import json
import math

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.jobs.columns_facts import Cells, JobGroupFacts, JobGroups, Spread
from store.tables import Sweep
from torchyard.contract.columns import Column, Scalar, SweepColumn
from torchyard.contract.job import JobState

MOST_GROUPS = 200


class Grouping:
    """Groups jobs that are added one part after the other."""

    def __init__(self, by: Column, columns: Sequence[Column]) -> None:
        """`columns`: those of whose numbers the spread is told."""
        self._by = by
        self._columns = columns
        self._counts: dict[str | None, Counter[JobState]] = defaultdict(Counter)
        self._numbers: dict[tuple[str | None, Column], list[float]] = defaultdict(list)

    def add(self, state: JobState, cells: Cells) -> None:
        """Adds a job with its values of all the columns."""
        value = value_of(cells.get(self._by))
        self._counts[value][state] += 1
        for column in self._columns:
            number = cells.get(column)
            if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
                self._numbers[value, column].append(number)

    def groups(self, session: Session, *, is_complete: bool) -> JobGroups:
        """Returns the groups, the largest first, and then the jobs without a value. `is_complete`: of the jobs."""
        ordered = sorted(self._counts.items(), key=lambda item: (item[0] is None, -item[1].total(), item[0] or ""))
        shown = ordered[:MOST_GROUPS]
        names = _names(session, [value for value, _ in shown if value]) if isinstance(self._by, SweepColumn) else {}
        made = [
            JobGroupFacts(
                value,
                names.get(value or ""),
                {state: counts[state] for state in JobState if state in counts},
                {
                    column: _spread(self._numbers[value, column])
                    for column in self._columns
                    if (value, column) in self._numbers
                },
            )
            for value, counts in shown
        ]
        return JobGroups(made, is_complete=is_complete and len(ordered) <= MOST_GROUPS)


def value_of(cell: Scalar) -> str | None:
    """Returns the text that names the group of a value."""
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell)


def _spread(numbers: Sequence[float]) -> Spread:
    # Of numbers below 1: the squares of large ones are no floats.
    exponent = max(math.frexp(number)[1] for number in numbers)
    scaled = [math.ldexp(number, -exponent) for number in numbers]
    mean = math.fsum(scaled) / len(scaled)
    std = None
    if len(scaled) > 1:
        std = math.sqrt(math.fsum((number - mean) ** 2 for number in scaled) / (len(scaled) - 1))
    return Spread(len(numbers), math.ldexp(mean, exponent), _unscaled(std, exponent), min(numbers), max(numbers))


def _unscaled(std: float | None, exponent: int) -> float | None:
    try:
        return None if std is None else math.ldexp(std, exponent)
    except OverflowError:
        return None


def _names(session: Session, sweep_ids: Sequence[str]) -> Mapping[str, str]:
    return {row.id: row.name for row in session.execute(select(Sweep.id, Sweep.name).where(Sweep.id.in_(sweep_ids)))}
