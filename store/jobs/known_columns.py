"""Which columns a table of some jobs may have: what their specs, metrics, labels and notes have."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from store.jobs.columns import cell
from store.tables import Base, Series
from torchyard.contract.jobs.columns import NOTES, Scalar, spec_name

_JOBS = Base.metadata.tables["jobs"].c
_MOST_NAMES = 1000
_MOST_KEPT = 20_000
"""Names that are remembered from one part to the next: a job may have thousands that no other has."""


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


class Finding:
    """The columns of jobs that are added one part after the other."""

    def __init__(self) -> None:
        self._jobs = 0
        self._counts: Counter[str] = Counter()
        self._values: dict[str, Scalar] = {}
        """The first value of each."""
        self._differing: set[str] = set()

    def add(self, session: Session, job_ids: Sequence[str]) -> None:
        """Adds jobs, which the caller may read."""
        query = select(cast(_JOBS.spec, Text()), cast(_JOBS.labels, Text()), _JOBS.notes.is_not(None))
        for spec, labels, has_notes in session.execute(query.where(_JOBS.id.in_(job_ids))):
            self._jobs += 1
            for name, value in _of_spec(from_json(spec)):
                self._see(name, cell(value))
            for key, value in from_json(labels).items():
                self._see(f"label:{key}", value)
            if has_notes:
                self._counts[NOTES] += 1
                self._differing.add(NOTES)
        self._add_metrics(session, job_ids)
        self._forget_rare()

    def columns(self) -> KnownColumns:
        """Returns the columns: those that most jobs have, by name."""
        names = sorted(name for name, _ in self._counts.most_common(_MOST_NAMES))
        columns = [KnownColumn(name, self._counts[name], differs=self._differs(name)) for name in names]
        return KnownColumns(columns, self._jobs)

    def _add_metrics(self, session: Session, job_ids: Sequence[str]) -> None:
        least, most = func.min(Series.latest), func.max(Series.latest)
        query = select(Series.key, func.count(), least, most).where(Series.job_id.in_(job_ids)).group_by(Series.key)
        for key, count, low, high in session.execute(query):
            name = f"metric:{key}:last"
            self._see(name, low)
            self._counts[name] += count - 1
            if low != high:
                self._differing.add(name)

    def _forget_rare(self) -> None:
        if len(self._counts) > _MOST_KEPT:
            self._counts = Counter(dict(self._counts.most_common(_MOST_KEPT)))
            self._values = {name: value for name, value in self._values.items() if name in self._counts}
            self._differing &= self._counts.keys()

    def _see(self, name: str, value: Scalar) -> None:
        if value is None:
            return
        self._counts[name] += 1
        if self._values.setdefault(name, value) != value:
            self._differing.add(name)

    def _differs(self, name: str) -> bool:
        return name in self._differing or self._counts[name] < self._jobs


def _of_spec(document: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        path = (*above, key)
        if path == ("labels",):  # they have columns of their own
            continue
        if isinstance(value, dict):
            yield from _of_spec(value, path)
        elif (name := spec_name(path)) is not None:
            yield name, value
