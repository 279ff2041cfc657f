"""Pools as a plan and a submission see them."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from scheduling.pools import Pool
from store.db.database import in_us, now_us
from store.db.prepared import Prepared
from store.tables import Attempt, Job, Worker
from torchyard.contract.cluster import pools as contract
from torchyard.contract.cluster.devices import PoolReport
from torchyard.contract.spec.spec import Spec
from torchyard.contract.wire.text import headline, printable

FORGOTTEN_AFTER = timedelta(days=1)
"""A pool that no daemon served for so long is unknown to who submits a job."""
_LONGEST_OBSTACLE = 300
"""Characters: it may be what a cluster's command has written, and everybody whose job waits reads it."""

_WAITING = Prepared(
    select(Attempt.worker_id, Job.owner, func.count().label("jobs"))
    .join(Job, Job.id == Attempt.job_id)
    .where(Attempt.ended_at.is_(None), Attempt.pool_devices > 0, Attempt.running_at.is_(None))
    .group_by(Attempt.worker_id, Job.owner)
)
_KNOWN = (
    select(Worker.name, Worker.pool)
    .where(Worker.pool.is_not(None), Worker.seen_at > now_us() - in_us(FORGOTTEN_AFTER))
    .order_by(Worker.seen_at)
)


def of_rows(session: Session, rows: Collection[Any]) -> tuple[Pool, ...]:
    """Returns the pools of workers, given by their columns, with how many jobs wait in each."""
    if not rows:
        return ()
    waiting: dict[str, dict[str, int]] = {}
    for row in _WAITING.rows(session):
        waiting.setdefault(row.worker_id, {})[row.owner] = row.jobs
    parsed = (_pool(row, waiting.get(row.id, {})) for row in sorted(rows, key=lambda row: row.id))
    return tuple(pool for pool in parsed if pool is not None)


def resolved(session: Session, spec: Spec, owner: str) -> Spec:
    """Returns the spec with the pool of the service that its job runs in, if it needs one. Raises InvalidSpec."""
    if not contract.needs_pool(spec):
        return spec
    # Of two pools of one name, the one that was seen last: the other one's folder is lost.
    reports = {name: _report(written) for name, written in session.execute(_KNOWN)}
    known = {name: report for name, report in reports.items() if report is not None}
    return contract.resolved(spec, owner, known)


def _report(written: Any) -> PoolReport | None:
    try:
        return PoolReport.from_dict(written)
    except ValueError:  # of a newer program: only such a one gives jobs to the pool
        return None


def _pool(row: Any, waiting: dict[str, int]) -> Pool | None:
    report = _report(row.pool)
    if report is None:
        return None
    return Pool(
        id=row.id,
        name=row.name,
        kind=report.kind,
        devices=report.nodes.count * report.nodes.devices,
        draining=row.drain_requested_at is not None,
        obstacle=None if report.obstacle is None else printable(headline(report.obstacle))[:_LONGEST_OBSTACLE],
        ahead=report.ahead,
        waiting=waiting,
    )
