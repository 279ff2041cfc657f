"""Removes checkpoints: those that the spec's policy does not keep, and the oldest of an owner who is over the quota.

None that is in a model of the job's owner: that counts once, and its removal would free nothing.
"""

from collections import Counter
from collections.abc import Collection, Sequence
import math
from typing import NamedTuple

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from store.blobs import garbage
from store.db.database import now_us
from store.db.stored_spec import StoredCheckpointPolicy
from store.jobs import jobs
from store.output import metrics
from store.output.checkpoints_facts import captured_file, order_key
from store.tables import Checkpoint, Job, ModelVersion
from store.team import quotas
from store.team.limits import find_limit
from torchyard.contract.team.roles import Resource

_PER_STATEMENT = 1000
"""Checkpoints that one statement names: a database limits its values."""


def prune(session: Session, job_id: str, *, versions: int | None) -> str | None:
    """Removes the checkpoints that the job's policy does not keep, and adds their blobs to the garbage.

    Of a captured file it keeps the newest `versions` whole ones; None: all. Then, if what the owner has stored exceeds
    the quota, removes this job's oldest but for the best and the latest, until they do not. Returns a message to the
    owner about that, or None.

    Call it as the owner of the job's newest attempt, after listing a checkpoint: then neither the latest nor the best
    checkpoint is removed.
    """
    job = session.get_one(Job, job_id)
    policy = job.stored_spec.checkpoint
    limit = find_limit(session, job.owner, Resource.STORED_BYTES)
    if policy.keep_last is None and limit is None and not _has_captured(session, job_id):
        return None
    jobs.lock(session, job_id)  # a submission that starts from one of them keeps the job until it is stored
    rows = _oldest_first(session, job)
    kept = _choose_kept(rows, policy, last=policy.keep_last, best=policy.keep_best)
    old = _old_versions(rows, versions)
    _remove(session, [row.id for row in rows if row.id not in kept or row.id in old])
    rows = [row for row in rows if row.id in kept and row.id not in old]
    if limit is None:
        return None
    excess = quotas.stored_bytes(session, job.owner) - limit
    whole = [row for row in rows if not row.damaged]
    gone = _oldest(rows, excess, spared=_choose_kept(whole, policy, last=1, best=1))
    _remove(session, gone)
    return _quota_notice(job.owner, limit) if gone else None


def _quota_notice(owner: str, limit: int) -> str:
    return (
        f"{quotas.COUNTED} of {owner} exceed the quota of {limit} bytes: the oldest checkpoints of"
        " this job are removed, but never the best and the latest"
    )


def _remove(session: Session, gone: Sequence[str]) -> None:
    for first in range(0, len(gone), _PER_STATEMENT):
        some = Checkpoint.id.in_(gone[first : first + _PER_STATEMENT])
        garbage.add(session, session.scalars(select(Checkpoint.files).where(some)))
        change = update(Checkpoint).where(some).values(removed_at=now_us(), files=[], size=0)
        session.execute(change, execution_options={"synchronize_session": False})


class _Row(NamedTuple):
    id: str
    attempt: int
    saved_at: int
    damaged: bool
    source: str | None
    name: str
    step: int
    monitored: float
    """NaN without a value."""
    size: int


def _oldest_first(session: Session, job: Job) -> list[_Row]:
    """Returns the listed checkpoints but those in models of the owner.

    Those beyond the step at which a later attempt began count as older than all others.
    """
    columns = (getattr(Checkpoint, name) for name in _Row._fields)
    in_model = exists().where(ModelVersion.checkpoint_id == Checkpoint.id, ModelVersion.owner == job.owner)
    query = select(*columns).where(Checkpoint.job_id == job.id, Checkpoint.removed_at.is_(None), ~in_model)
    rows, last_steps = session.execute(query), metrics.read_last_visible_steps(session, job.id)
    return sorted(
        map(_Row._make, rows),
        key=lambda row: (row.step <= last_steps[row.attempt], *order_key(row)),
    )


def _choose_kept(rows: Sequence[_Row], policy: StoredCheckpointPolicy, *, last: int | None, best: int) -> set[str]:
    """Returns the ids of the `last` newest whole and the `best` best of `rows`, which are in order, oldest first.

    What the program published is counted apart from its files that were captured. Those that are not whole are kept
    until a whole one is newer. `last` None: all.
    """
    if last is None:
        return {row.id for row in rows}
    sign = 1 if policy.mode == "min" else -1
    whole = [row for row in rows if not row.damaged]
    measured = [row for row in whole if not math.isnan(row.monitored)]
    ranked = sorted(measured, key=lambda row: (sign * row.monitored, *order_key(row)))
    published = [row for row in whole if row.source is None]
    captured = [row for row in whole if row.source is not None]
    torn = rows[rows.index(whole[-1]) :] if whole else rows
    return {row.id for row in [*published[-last:], *captured[-last:], *ranked[:best], *torn]}


def _old_versions(rows: Sequence[_Row], versions: int | None) -> set[str]:
    """Returns the ids of those captured ones of which as many newer whole ones of the same file are in `rows`."""
    if versions is None:
        return set()
    newer: Counter[str] = Counter()
    old: set[str] = set()
    for row in reversed(rows):
        if row.source is None:
            continue
        file = captured_file(row.name)
        if newer[file] >= versions:
            old.add(row.id)
        newer[file] += not row.damaged
    return old


def _has_captured(session: Session, job_id: str) -> bool:
    query = select(Checkpoint.id).where(
        Checkpoint.job_id == job_id, Checkpoint.removed_at.is_(None), Checkpoint.source.is_not(None)
    )
    return session.execute(query.limit(1)).first() is not None


def _oldest(rows: Sequence[_Row], excess: int, *, spared: Collection[str]) -> list[str]:
    """Returns the ids of the first of `rows` but the spared ones: as many as have `excess` bytes together."""
    gone: list[str] = []
    for row in rows:
        if excess > 0 and row.id not in spared:
            gone.append(row.id)
            excess -= row.size
    return gone
