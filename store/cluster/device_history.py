"""How the devices of workers were used: a row for each slot of 5 s, of a minute, and of 15 minutes.

A worker has at most one row for each slot, and those that are too old go as new ones come: 5,040 rows at most. A row of
coarser slots is merged from finer rows when its slot has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from statistics import mode
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from store.cluster.facts import History, Sample, Slots, Use
from store.db.database import document, now_us
from store.db.prepared import Prepared
from store.jobs import jobs
from store.tables import Base, DeviceSample

KEPT = {5: timedelta(hours=1), 60: timedelta(days=1), 900: timedelta(days=30)}
"""For how long slots of each resolution, in seconds, are kept. Each is a multiple of the one before it."""
_FINEST = min(KEPT)
_SLACK_S = 60
"""A client that asks for the last hour may have sent that a moment ago, or have a clock that is late."""

_SAMPLES = Base.metadata.tables[DeviceSample.__tablename__]
# Built once, because each heartbeat executes them.
_NOW = Prepared(select(now_us()))
_NEWEST = Prepared(
    select(func.max(_SAMPLES.c.begins)).where(
        _SAMPLES.c.worker_id == bindparam("worker"), _SAMPLES.c.resolution == _FINEST
    )
)
_NEW = postgresql.insert(_SAMPLES).inline()  # SQLite writes the same words
_STORE = Prepared(
    _NEW.on_conflict_do_update(
        index_elements=["worker_id", "resolution", "begins"], set_={"devices": _NEW.excluded.devices}
    ),
    columns=("worker_id", "resolution", "begins", "devices"),
)
_DELETE_OLD = Prepared(
    delete(_SAMPLES).where(
        _SAMPLES.c.worker_id == bindparam("worker"),
        _SAMPLES.c.resolution == bindparam("of"),
        _SAMPLES.c.begins <= bindparam("until"),
    )
)


def add_samples(session: Session, worker_id: str, samples: Iterable[Sample]) -> None:
    """Stores how the worker's devices were used. The oldest sample comes first."""
    now, newest = _read_now(session), _find_newest(session, worker_id)
    holders = jobs.device_holders_on(session, worker_id)
    for sample in samples:
        at = now - int(sample.age_s)
        begins = at - at % _FINEST
        if newest is not None:
            _merge_ended(session, worker_id, newest, at)
        _store(
            session, worker_id, _FINEST, begins, {device["uuid"]: _use_of(device, holders) for device in sample.devices}
        )
        newest = begins if newest is None else max(newest, begins)


def read(session: Session, worker_id: str, *, begins: int | None, ends: int | None, most: int) -> History:
    """Returns the slots between two times, in seconds since the epoch: at most `most`, as fine as they are kept.

    Without times: those of the last hour.
    """
    now = _read_now(session)
    ends = min(now, ends) if ends is not None else now
    begins = max(begins, now - _kept_s(max(KEPT))) if begins is not None else now - _kept_s(_FINEST)
    stored = next((resolution for resolution in KEPT if begins >= now - _kept_s(resolution) - _SLACK_S), max(KEPT))
    span = max(0, ends - begins)
    resolution = stored * max(1, -(-(span + stored) // (stored * most)))
    first = begins - begins % resolution
    slots: dict[int, list[Mapping[str, Use]]] = {}
    for start, uses in sorted(_with_newest(session, worker_id, stored, first, ends + 1).items()):
        slots.setdefault(start - start % resolution, []).append(uses)
    return History(resolution, {start: merged(uses) for start, uses in list(slots.items())[-most:]})


def merged(slots: Iterable[Mapping[str, Use]]) -> dict[str, Use]:
    """Returns the use of each device in all the slots together."""
    by_device: dict[str, list[Use]] = {}
    for slot in slots:
        for uuid, use in slot.items():
            by_device.setdefault(uuid, []).append(use)
    return {uuid: _merge_uses(uses) for uuid, uses in by_device.items()}


def delete_old(session: Session) -> None:
    """Removes what is kept no longer, also of workers that are gone."""
    now = _read_now(session)
    old = (
        and_(DeviceSample.resolution == resolution, DeviceSample.begins <= now - _kept_s(resolution) - resolution)
        for resolution in KEPT
    )
    session.execute(delete(DeviceSample).where(or_(*old)))


def _use_of(device: Mapping[str, Any], holders: Mapping[str, str]) -> Use:
    return Use(
        device["utilization"],
        device["utilization"],
        device["memory_used_bytes"],
        holders.get(device["uuid"]),
        device.get("power_watts"),  # an older worker sends none
    )


def _merge_ended(session: Session, worker_id: str, newest: int, now: int) -> None:
    """Stores the coarser slots of the newest row, if they have ended since."""
    for fine, coarse in pairwise(KEPT):
        begins = newest - newest % coarse
        if begins == now - now % coarse:
            return
        finer = _read_slots(session, worker_id, fine, begins, begins + coarse)
        _store(session, worker_id, coarse, begins, merged(finer.values()))


def _merge_uses(uses: Sequence[Use]) -> Use:
    if len(uses) == 1:
        return uses[0]
    means = [use.utilization for use in uses if use.utilization is not None]
    greatest = [use.utilization_max for use in uses if use.utilization_max is not None]
    memory = [use.memory_used for use in uses if use.memory_used is not None]
    power = [use.power_watts for use in uses if use.power_watts is not None]
    holders = [use.job_id for use in uses if use.job_id is not None]
    return Use(
        round(sum(means) / len(means), 4) if means else None,
        max(greatest, default=None),
        sum(memory) // len(memory) if memory else None,
        mode(holders) if holders else None,
        round(sum(power) / len(power), 1) if power else None,
    )


def _with_newest(
    session: Session, worker_id: str, resolution: int, begins: int, ends: int
) -> dict[int, Mapping[str, Use]]:
    """Returns the stored slots, and what finer ones tell of the slot that has not ended."""
    slots = dict(_read_slots(session, worker_id, resolution, begins, ends))
    newest = _find_newest(session, worker_id)
    finer = max((fine for fine in KEPT if fine < resolution), default=None)
    if newest is None or finer is None:
        return slots
    started = newest - newest % resolution
    if begins <= started < ends and started not in slots:
        parts = _read_slots(session, worker_id, finer, started, ends) or _read_slots(
            session, worker_id, _FINEST, started, ends
        )
        if parts:
            slots[started] = merged(parts.values())
    return slots


def _store(session: Session, worker_id: str, resolution: int, begins: int, used: Mapping[str, Use]) -> None:
    """Stores one slot, and removes those of the worker that are too old."""
    uses = {
        uuid: [use.utilization, use.utilization_max, use.memory_used, use.job_id, use.power_watts]
        for uuid, use in used.items()
    }
    row = {"worker_id": worker_id, "resolution": resolution, "begins": begins, "devices": document(uses)}
    _STORE.write(session, [row])
    _DELETE_OLD.write(session, [{"worker": worker_id, "of": resolution, "until": begins - _kept_s(resolution)}])


def _read_slots(session: Session, worker_id: str, resolution: int, begins: int, ends: int) -> Slots:
    query = select(DeviceSample.begins, DeviceSample.devices).where(
        DeviceSample.worker_id == worker_id,
        DeviceSample.resolution == resolution,
        DeviceSample.begins >= begins,
        DeviceSample.begins < ends,
    )
    return {row.begins: {uuid: Use(*use) for uuid, use in row.devices.items()} for row in session.execute(query)}


def _find_newest(session: Session, worker_id: str) -> int | None:
    ((newest,),) = _NEWEST.read(session, {"worker": worker_id})
    return newest


def _read_now(session: Session) -> int:
    ((now,),) = _NOW.read(session)
    return now // 1_000_000


def _kept_s(resolution: int) -> int:
    return int(KEPT[resolution].total_seconds())
