"""Why jobs wait: one row for all jobs of a shape, so that a changed reason is one write for any number of jobs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, literal_column, or_, select, text
from sqlalchemy.orm import Session

from scheduling.reasons import PREEMPTING
from store.db.database import now_us
from store.db.prepared import Prepared, among, texts
from store.db.upsert import upsert
from store.jobs.facts import DisplayedReason
from store.jobs.tables import HAS_OWN_REASON
from store.queue.line.conditions import is_queued, waits
from store.tables import Base, Job, WaitingReason
from torchyard.contract.states import RESERVED, JobState, Reason

# With a limit, so that PostgreSQL searches the index once for each shape and does not join thousands of jobs.
_UNUSED = select(Job.id).where(waits(), Job.shape == WaitingReason.shape).limit(1).scalar_subquery().is_(None)

_OWN = {PREEMPTING, RESERVED}
_REASONS, _JOBS = Base.metadata.tables["waiting_reasons"], Base.metadata.tables["jobs"]
JOINED = _JOBS.outerjoin(_REASONS, _REASONS.c.shape == _JOBS.c.shape)
"""Jobs, each with the reason of its shape, whose columns are `COMMON`."""
COMMON = tuple(_REASONS.c[name].label(f"common_{name}") for name in ("code", "message", "since"))
# Built once, because every answer with jobs and each pass over the queue executes them.
_OF_SHAPES = select(_REASONS).where(_REASONS.c.shape.in_(bindparam("shapes", expanding=True)))
_ONE = select(literal_column("1").label("one")).subquery()
_NOW = Prepared(
    select(now_us(), *(_REASONS.c[name] for name in ("shape", "code", "message", "since"))).select_from(
        _ONE.outerjoin(_REASONS, among(_REASONS.c.shape, "shapes"))
    )
)
_BY_SHAPE = Prepared(select(WaitingReason.shape, WaitingReason.code, WaitingReason.message))
_OWN_REASON = select(Job.id, Job.reason_message).where(is_queued())
_OF_FAVOURED = Prepared(_OWN_REASON.where(text(HAS_OWN_REASON)))
_OF_SOME = Prepared(_OWN_REASON.where(among(_JOBS.c.id, "ids")))


@dataclass(frozen=True)
class Moment:
    """The time by the database's clock, and what the jobs of some shapes wait for at that time."""

    now: int
    common: Mapping[str, DisplayedReason]

    def displayed(self, job: Any) -> DisplayedReason:
        """Returns the reason of a job of one of the shapes."""
        return _shown(job, self.common.get(job.shape) if _waits_with_others(job) else None)


def read_moment(session: Session, shapes: Collection[str]) -> Moment:
    """Returns what the jobs of the shapes wait for now."""
    rows = _NOW.read(session, {"shapes": texts(shapes)})
    common = {shape: DisplayedReason(*reason) for _, shape, *reason in rows if shape is not None}
    return Moment(rows[0][0], common)


def displayed(session: Session, jobs: Collection[Any]) -> dict[str, DisplayedReason]:
    """Returns the reasons of jobs by id: that of its shape, unless the job waits for a reason of its own.

    `jobs` are rows, or their columns.
    """
    shapes = {job.shape for job in jobs if _waits_with_others(job)}
    by_shape: dict[str | None, DisplayedReason] = {}
    if shapes:
        rows = session.execute(_OF_SHAPES, {"shapes": list(shapes)})
        by_shape = {row.shape: DisplayedReason(row.code, row.message, row.since) for row in rows}
    return {job.id: _shown(job, by_shape.get(job.shape) if _waits_with_others(job) else None) for job in jobs}


def of_row(row: Any) -> DisplayedReason:
    """Returns the reason of a job by a row of `JOINED`, as `displayed` chooses it."""
    if row.common_code is None or not _waits_with_others(row):
        return _shown(row, None)
    return _shown(row, DisplayedReason(row.common_code, row.common_message, row.common_since))


def by_shape(session: Session) -> dict[str, Reason]:
    """Returns the stored reason of each shape."""
    return {shape: Reason(code, message) for shape, code, message in _BY_SHAPE.read(session)}


def of_favoured(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    """Returns the reasons of all queued jobs that have their own, and of those among `job_ids` that are queued, by id.

    A job has its own reason if others stop for it, or a place is kept for it.
    """
    some = _OF_SOME.read(session, {"ids": texts(job_ids)}) if job_ids else ()
    return {job_id: message for job_id, message in (*_OF_FAVOURED.read(session), *some)}  # noqa: C416 rows


def store_reasons(session: Session, reasons: Mapping[str, Reason]) -> None:
    """Stores why the jobs of each shape wait. Writes only reasons that change."""
    new = upsert(session, WaitingReason)
    values = {"code": new.excluded.code, "message": new.excluded.message, "since": now_us()}
    statement = new.on_conflict_do_update(
        index_elements=["shape"],
        set_=values,
        where=or_(WaitingReason.message != new.excluded.message, WaitingReason.code != new.excluded.code),
    )
    # Always in one order: two workers that wait for each other's rows would deadlock.
    rows = [
        {"shape": shape, "code": reason.code, "message": reason.message}
        for shape, reason in sorted(reasons.items(), key=lambda item: item[0])
    ]
    if rows:
        session.execute(statement, rows)


def any_unused(session: Session) -> bool:
    """Returns whether a reason is stored for a shape that no waiting job has."""
    return session.scalar(select(WaitingReason.shape).where(_UNUSED).limit(1)) is not None


def delete_unused(session: Session) -> None:
    """Deletes the reasons of shapes that no waiting job has."""
    idle = select(WaitingReason.shape).where(_UNUSED).order_by(WaitingReason.shape).with_for_update()
    session.execute(delete(WaitingReason).where(WaitingReason.shape.in_(list(session.scalars(idle)))))


def _waits_with_others(job: Any) -> bool:
    return job.state == JobState.QUEUED and job.not_before is None and job.reason_code not in _OWN


def _shown(job: Any, common: DisplayedReason | None) -> DisplayedReason:
    if common is None:
        return DisplayedReason(job.reason_code, job.reason_message, job.reason_since)
    return DisplayedReason(common.code, common.message, max(common.since, job.reason_since))
