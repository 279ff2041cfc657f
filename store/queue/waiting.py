"""Jobs that wait for devices, and those that are held back after a failure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
import logging
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import and_, exists, func, literal_column, or_, select, update
from sqlalchemy.orm import Session

from scheduling.needs import NO_NEEDS, Needs
from scheduling.snapshot import Group, Waiting
from store.announcement import announcement_of
from store.attempts import lease
from store.cluster import occupancy as cluster
from store.db import stored_spec
from store.db.database import now_us
from store.db.prepared import Prepared, among, texts
from store.queue import usage
from store.queue.line.conditions import is_queued, waits
from store.queue.line.entries import COLUMNS, entry_of
from store.tables import Attempt, Base, Job
from torchyard.contract.states import EndReason

logger = logging.getLogger(__name__)

_GROUPED_PER_CALL = 1000
# A host that lost its attempt, or could not start it, is no place to go back to.
_LOST = [literal_column(f"'{reason}'") for reason in (EndReason.WORKER_LOST, EndReason.LAUNCH_FAILED)]
_OWN_HOME = (
    select(Attempt.worker_id)
    .where(Attempt.job_id == Job.id, Attempt.number == Job.attempt)
    .where(Attempt.launcher.is_not(None), *(Attempt.end_reason != reason for reason in _LOST))
)
_INHERITED_HOME = (
    select(Attempt.worker_id)
    .where(Job.attempt == literal_column("0"), Job.begins_with == literal_column("'folder'"))
    .where(Attempt.job_id == Job.retry_of)
    .order_by(Attempt.number.desc())
    .limit(literal_column("1"))
)
_COLUMNS = (
    Job.id,
    Job.priority,
    Job.shape,
    Job.spec["resources"].label("resources"),
    Job.owner,
    Job.trainer,
    Job.created_at,
    Job.ran_us,
    (Job.waited_us + now_us() - Job.lined_at).label("waited_us"),
    Job.progress,
    Job.spec["preemptible"].label("preemptible"),
    Job.spec["time_limit"].label("time_limit"),
    func.coalesce(_OWN_HOME.scalar_subquery(), _INHERITED_HOME.scalar_subquery()).label("home"),
    Job.needs,
)
_AMONG = among(Base.metadata.tables["jobs"].c.id, "ids")
# Built once, because each pass over the line executes it.
_WAITING = Prepared(select(*_COLUMNS).where(_AMONG, waits()))
_OPEN = Prepared(select(*_COLUMNS).where(_AMONG))
_ANY_AWAY = exists().where(Attempt.ended_at.is_(None), lease.may_return())
_ANY_WAITS = Prepared(select(literal_column("1")).where(or_(exists().where(waits(), Job.shape > ""), _ANY_AWAY)))
# In a subquery, because PostgreSQL cannot search an index for a clock that advances.
_NOW = select(now_us()).scalar_subquery()
_HELD_BACK = and_(is_queued(), Job.not_before.is_not(None), Job.not_before <= _NOW)
_ANY_UNGROUPED = Prepared(select(literal_column("1")).where(exists().where(_HELD_BACK)))


class WaitingRow(NamedTuple):
    """What a row says of a job that waits. Times are in microseconds."""

    id: str
    priority: int
    shape: str
    resources: dict[str, Any]
    owner: str
    trainer: str
    submitted: int
    ran_us: int
    waited_us: int
    progress: dict[str, Any] | None
    preemptible: bool | None
    time_limit: str | None
    home: str | None
    needs: dict[str, Any] | None

    @property
    def group(self) -> Group:
        return self.shape, self.priority

    def understood(self, usual_us: int | None) -> Waiting | None:
        """Returns the job; None if only a newer program reads its request.

        `usual_us`: the mean length of its owner's last two runs of its trainer.
        """
        try:
            resources = stored_spec.parse_resources(self.resources)
        except ValidationError:
            logger.warning("%s: this worker does not understand its request: %s", self.id, self.resources)
            return None
        return Waiting(
            id=self.id,
            owner=self.owner,
            priority=self.priority,
            shape=self.shape,
            resources=resources,
            submitted=self.submitted,
            limit_us=cluster.time_limit_us(self.time_limit),
            preemptible=bool(self.preemptible),
            ran_us=self.ran_us,
            waited_us=max(0, self.waited_us),
            fraction=cluster.fraction(self.progress),
            usual_us=usual_us,
            home=self.home,
            needs=needs(self.needs),
        )


def needs(stored: Mapping[str, Any] | None) -> Needs:
    """Returns what a job needs of a host, as `store.jobs.needs.needs_of` its spec is stored."""
    return NO_NEEDS if stored is None else Needs(tuple(stored["folders"]), stored.get("python"))


def any_waits(session: Session) -> bool:
    """Returns whether there is any group, or a job that could be taken from a worker that does not answer."""
    return bool(_ANY_WAITS.read(session))


def waiting_among(session: Session, job_ids: Collection[str]) -> list[Waiting]:
    """Returns those of `job_ids` that wait, but for those whose request only a newer program reads."""
    return understood(session, standing(session, job_ids).values())


def understood(session: Session, rows: Iterable[WaitingRow]) -> list[Waiting]:
    """Returns the jobs of these rows, in this order, but for those whose request only a newer program reads."""
    rows = [*rows]
    lengths = usage.usual_lengths(session, {row.owner for row in rows}) if rows else {}
    jobs = [row.understood(lengths.get((row.owner, row.trainer))) for row in rows]
    return [job for job in jobs if job is not None]


def standing(session: Session, job_ids: Collection[str]) -> dict[str, WaitingRow]:
    """Returns those of `job_ids` that wait, by id."""
    if not job_ids:
        return {}
    rows = _WAITING.rows(session, {"ids": texts(job_ids)})
    return {row.id: WaitingRow(*row) for row in rows}


def open_among(session: Session, job_ids: Collection[str]) -> list[Waiting]:
    """Returns those of `job_ids`, which have an open attempt, as they would wait if that had ended."""
    if not job_ids:
        return []
    rows = [WaitingRow(*row) for row in _OPEN.rows(session, {"ids": texts(job_ids)})]
    return [replace(job, home=None) for job in understood(session, rows)]


def any_ungrouped(session: Session) -> bool:
    """Returns whether jobs wait that `group_jobs` would put into groups."""
    return bool(_ANY_UNGROUPED.read(session))


def group_jobs(session: Session) -> bool:
    """Puts jobs that are no longer held back into their groups. Returns True if there may be more."""
    # Always in one order: two workers that wait for each other's rows would deadlock.
    due = select(Job.id).where(_HELD_BACK).order_by(Job.id).limit(_GROUPED_PER_CALL).with_for_update()
    released = list(session.scalars(due))
    if released:
        rows = session.execute(
            update(Job)
            .where(Job.id.in_(released))
            .values(not_before=None, lined_at=now_us(), waited_us=Job.waited_us + now_us() - Job.lined_at)
            .returning(*COLUMNS)
            .execution_options(synchronize_session=False)
        )
        announcement_of(session).line.update({row.id: entry_of(row) for row in rows})
    return len(released) == _GROUPED_PER_CALL
