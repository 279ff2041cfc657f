"""Removes checkpoints beyond the policy of the spec, which keeps some newest and some best ones."""

from collections.abc import Mapping, Sequence
import math
from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.db.stored_spec import StoredCheckpointPolicy
from store.db.tables import Checkpoint, Job
from store.rows import garbage, metrics


def prune(session: Session, job_id: str) -> None:
    """Removes the checkpoints that the job's policy does not keep, and adds their blobs to the garbage.

    Does nothing if `keep_last` is null. Call it as the owner of the job's newest attempt, after listing a checkpoint:
    then neither the latest nor the best checkpoint is removed.
    """
    policy = session.get_one(Job, job_id).stored_spec.checkpoint
    if policy.keep_last is None:
        return
    query = select(Checkpoint.id, Checkpoint.attempt, Checkpoint.step, Checkpoint.monitored)
    found = session.execute(query.where(Checkpoint.job_id == job_id, Checkpoint.removed_at.is_(None)))
    rows = [_Row(row.id, row.attempt, row.step, row.monitored) for row in found]
    if len(rows) <= policy.keep_last:
        return
    last_steps = metrics.last_visible_steps(session, job_id)
    kept = _kept(rows, policy, keep_last=policy.keep_last, last_steps=last_steps)
    gone = [row.id for row in rows if row.id not in kept]
    if gone:
        garbage.add(session, session.scalars(select(Checkpoint.files).where(Checkpoint.id.in_(gone))))
        change = update(Checkpoint).where(Checkpoint.id.in_(gone)).values(removed_at=now_us(), files=[], size=0)
        session.execute(change, execution_options={"synchronize_session": False})


class _Row(NamedTuple):
    id: str
    attempt: int
    step: int
    monitored: float
    """NaN without a value."""


def _kept(
    rows: Sequence[_Row], policy: StoredCheckpointPolicy, *, keep_last: int, last_steps: Mapping[int, int]
) -> set[str]:
    """Returns the ids to keep. Checkpoints beyond the start step of a later attempt count as older than all others."""
    sign = 1 if policy.mode == "min" else -1
    newest = sorted(rows, key=lambda row: (row.step <= last_steps[row.attempt], row.attempt, row.step, row.id))
    measured = [row for row in rows if not math.isnan(row.monitored)]
    best = sorted(measured, key=lambda row: (sign * row.monitored, row.step, row.id))
    return {row.id for row in newest[-keep_last:] + best[: policy.keep_best]}
