"""What owners used of the devices, and how long their runs took: by these a queue is fair."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from scheduling.usage import decayed, used_at
from store.db.database import now_us
from store.db.prepared import Prepared, among, texts
from store.db.upsert import upsert
from store.tables import Allocation, Attempt, Base, Job, RunLengths, Usage

_TABLES = Base.metadata.tables
# Built once, because each pass over the line executes them.
_ALL_USED = select(Usage.owner, Usage.kind, Usage.used_s, Usage.at)
_ALL_HELD = (
    select(Job.owner, Allocation.kind, Attempt.started_at, func.count().label("devices"))
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .join(Job, Job.id == Attempt.job_id)
    .where(Allocation.released_at.is_(None), Attempt.pool_devices == 0)
    .group_by(Attempt.id, Job.owner, Allocation.kind, Attempt.started_at)
)
_IN_POOLS = (
    select(Job.owner, Job.device_request, Attempt.running_at, Attempt.pool_devices)
    .join(Job, Job.id == Attempt.job_id)
    .where(Attempt.ended_at.is_(None), Attempt.pool_devices > 0, Attempt.running_at.is_not(None))
)
"""What runs in pools counts by what it has asked for, from when it runs."""
_ALL_LENGTHS = select(RunLengths.owner, RunLengths.trainer, RunLengths.last_us, RunLengths.before_us)
_USED, _USED_BY = Prepared(_ALL_USED), Prepared(_ALL_USED.where(among(_TABLES[Usage.__tablename__].c.owner, "owners")))
_OF_OWNERS = among(_TABLES["jobs"].c.owner, "owners")
_HELD, _HELD_BY = (
    Prepared(_ALL_HELD.union_all(_IN_POOLS)),
    Prepared(_ALL_HELD.where(_OF_OWNERS).union_all(_IN_POOLS.where(_OF_OWNERS))),
)
_LENGTHS, _LENGTHS_OF = (
    Prepared(_ALL_LENGTHS),
    Prepared(_ALL_LENGTHS.where(among(_TABLES[RunLengths.__tablename__].c.owner, "owners"))),
)


def add(session: Session, owner: str, devices: Mapping[str, int], *, began: int, ended: int) -> None:
    """Adds what an attempt used that has just ended. `devices`: how many it held, by kind."""
    for kind, count in sorted(devices.items()):
        is_row = (Usage.owner == owner, Usage.kind == kind)
        new = upsert(session, Usage).values(owner=owner, kind=kind, used_s=0.0, at=ended)
        session.execute(new.on_conflict_do_nothing(index_elements=["owner", "kind"]))
        row = session.execute(select(Usage.used_s, Usage.at).where(*is_row).with_for_update()).one()
        # After the lock, so that no other attempt has written a later time.
        now = session.execute(select(now_us())).scalar_one()
        used_s = decayed(row.used_s, after_us=now - row.at) + used_at(now, devices=count, began=began, ended=ended)
        session.execute(update(Usage).where(*is_row).values(used_s=used_s, at=now))


def used_seconds(session: Session, *, now: int, owners: Collection[str] | None = None) -> dict[tuple[str, str], float]:
    """Returns the device seconds that count at `now`, of ended attempts and of those that run, by owner and kind.

    `now` is a time of the database's clock. With `owners`, only theirs. Who has used nothing is left out.
    """
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    values = {} if owners is None else {"owners": texts(owners)}
    used, held = (_USED, _HELD) if owners is None else (_USED_BY, _HELD_BY)
    for owner, kind, used_s, at in used.read(session, values):
        seconds[owner, kind] += decayed(used_s, after_us=now - at)
    for owner, kind, began, devices in held.read(session, values):
        seconds[owner, kind] += used_at(now, devices=devices, began=began, ended=max(began, now))
    return dict(seconds)


def note_length(session: Session, owner: str, trainer: str, ran_us: int) -> None:
    """Remembers how long a job that has just succeeded ran, over all its attempts."""
    new = upsert(session, RunLengths).values(owner=owner, trainer=trainer, last_us=ran_us)
    changed = {"last_us": ran_us, "before_us": RunLengths.last_us}
    session.execute(new.on_conflict_do_update(index_elements=["owner", "trainer"], set_=changed))


def usual_lengths(session: Session, owners: Collection[str] | None = None) -> dict[tuple[str, str], int]:
    """Returns the mean length of the owner's last two successful jobs in microseconds, by owner and trainer."""
    rows = _LENGTHS.read(session) if owners is None else _LENGTHS_OF.read(session, {"owners": texts(owners)})
    return {(owner, trainer): last if before is None else (last + before) // 2 for owner, trainer, last, before in rows}
