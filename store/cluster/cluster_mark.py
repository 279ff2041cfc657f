"""Compares the state of the cluster with an earlier one: a plan is made again only where they differ."""

from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.cluster import workers
from store.db.prepared import Prepared
from store.tables import Attempt, Job, Reservation, Worker

_MARK = Prepared(
    select(
        select(func.coalesce(func.max(Job.lined_at), 0)).scalar_subquery().label("lined_at"),
        select(func.count()).where(Attempt.ended_at.is_(None)).scalar_subquery().label("running"),
        select(func.coalesce(func.sum(Reservation.since), 0))
        .where(Reservation.job_id.is_not(None))
        .scalar_subquery()
        .label("kept"),
        select(func.count())
        .where(workers.is_alive(), Worker.drain_requested_at.is_(None))
        .scalar_subquery()
        .label("workers"),
    )
)


class ClusterMark(NamedTuple):
    """Two equal ones: the same jobs wait and run in between, the same places are kept, and the same workers serve."""

    lined_at: int
    """When a job has last joined the line, moved in it, or left it. Each start is one that has left."""
    running: int
    kept: int
    """The sum of the moments since when places are kept for their jobs. When one is due may be said anew."""
    workers: int


def read_mark(session: Session) -> ClusterMark:
    """Returns the mark of this moment. It costs by the open attempts and the workers, not by the jobs."""
    return ClusterMark(*map(int, _MARK.read(session)[0]))
