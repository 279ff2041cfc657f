"""How well open attempts use their GPUs, as the heartbeats of their workers tell it."""

from collections.abc import Sequence
import math
from typing import NamedTuple

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.orm import Session

from store.cluster.facts import Sample
from store.db.database import now_us
from store.db.prepared import Prepared
from store.db.upsert import upsert
from store.tables import Allocation, Attempt, AttemptUse, Base
from torchyard.contract.attempts.idleness import IDLE_BELOW

_MOST_COUNTED_US = 15_000_000
"""A report tells of the time before it, but of no more than this: nothing is known of a gap."""
_GAP_US = 60_000_000
"""After a longer time without a report, nobody knows whether the GPUs were idle all the time."""


class Use(NamedTuple):
    """The columns of `store.tables.AttemptUse`."""

    seen_at: int
    measured_us: int = 0
    busy_us: int = 0
    idle_us: int = 0
    idle_since: int | None = None


_USES = Base.metadata.tables[AttemptUse.__tablename__].c
_COLUMNS = tuple(_USES[name] for name in Use._fields)
_HELD = Prepared(
    select(Attempt.id, Allocation.device, now_us().label("now"), Attempt.started_at, *_COLUMNS)
    .join(Allocation, Allocation.attempt_id == Attempt.id)
    .outerjoin(AttemptUse, AttemptUse.attempt_id == Attempt.id)
    .where(
        Allocation.worker_id == bindparam("worker"),
        Allocation.kind == "cuda",
        Allocation.released_at.is_(None),
        Attempt.ended_at.is_(None),
    )
    # An attempt that is written at this moment counts at the next report: a heartbeat waits for none.
    .with_for_update(of=Attempt, key_share=True, skip_locked=True)
)


def add(session: Session, worker_id: str, samples: Sequence[Sample]) -> None:
    """Adds what a worker reports of its devices. The oldest sample comes first."""
    reports = [
        (sample.age_s, {device["uuid"]: device["utilization"] for device in sample.devices if device["kind"] == "cuda"})
        for sample in samples
    ]
    if not any(shares for _, shares in reports):
        return
    held: dict[int, list[str]] = {}
    uses: dict[int, Use] = {}
    now = 0
    for attempt_id, device, read_at, started_at, *stored in _HELD.read(session, {"worker": worker_id}):
        held.setdefault(attempt_id, []).append(device)
        uses[attempt_id] = Use(started_at) if stored[0] is None else Use(*stored)
        now = max(now, read_at)  # PostgreSQL reads its clock for each row
    for age_s, shares in reports:
        for attempt_id, devices in held.items():
            use = uses[attempt_id]
            at = min(now, max(now - round(age_s * 1_000_000), use.seen_at))  # a sample may come twice
            uses[attempt_id] = counted(use, [shares.get(device) for device in devices], now=at)
    if rows := [{"attempt_id": attempt_id, **use._asdict()} for attempt_id, use in sorted(uses.items())]:
        new = upsert(session, AttemptUse)
        changed = {name: new.excluded[name] for name in Use._fields}
        session.execute(new.on_conflict_do_update(index_elements=["attempt_id"], set_=changed), rows)


def note_input(session: Session, attempt_id: int) -> None:
    """Notes that a user sends something to a program of theirs in the attempt: its job is not idle."""
    change = update(AttemptUse).where(AttemptUse.attempt_id == attempt_id).values(input_at=now_us())
    session.execute(change, execution_options={"synchronize_session": False})


def counted(use: Use, shares: Sequence[float | None], *, now: int) -> Use:
    """Returns the use with a report at `now`: the utilization of each device, None where it is not known."""
    known = [min(max(share, 0.0), 1.0) for share in shares if share is not None and not math.isnan(share)]
    idle = sum(share < IDLE_BELOW for share in known)
    since = now - use.seen_at
    us = min(max(since, 0), _MOST_COUNTED_US)
    goes_on = use.idle_since is not None and 0 <= since <= _GAP_US and use.idle_since <= now
    return Use(
        seen_at=now,
        measured_us=use.measured_us + us * len(known),
        busy_us=use.busy_us + round(us * sum(known)),
        idle_us=use.idle_us + us * idle,
        idle_since=None if idle < len(shares) else use.idle_since if goes_on else now,
    )


def take(session: Session, attempt_id: int) -> Use | None:
    """Removes what is known of an attempt, whose row is locked, and returns it."""
    row = session.execute(delete(AttemptUse).where(AttemptUse.attempt_id == attempt_id).returning(*_COLUMNS)).first()
    return None if row is None else Use(*row)  # pyrefly: ignore[bad-argument-count] it counts ten columns at least
