"""How the devices of workers were used: a row for each slot of 5 s, of a minute, and of 15 minutes.

A worker has at most one row for each slot, and those that are too old go as new ones come: 5,040 rows at most. A row of
coarser slots is merged from finer rows when its slot has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from statistics import mode
from typing import Any

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.orm import Session

from store.cluster.facts import History, Slots, Use
from store.db.database import now_us
from store.db.upsert import upsert
from store.jobs import jobs
from store.tables import DeviceSample

KEPT = {5: timedelta(hours=1), 60: timedelta(days=1), 900: timedelta(days=30)}
"""For how long slots of each resolution, in seconds, are kept. Each is a multiple of the one before it."""
_FINEST = min(KEPT)
_SLACK_S = 60
"""A client that asks for the last hour may have sent that a moment ago, or have a clock that is late."""


def add_samples(session: Session, worker_id: str, devices: Iterable[Mapping[str, Any]], *, age_s: float = 0.0) -> None:
    """Stores how the worker's devices were used `age_s` seconds ago: each is a `DeviceReport` as JSON."""
    now = _read_now(session) - int(age_s)
    _merge_ended(session, worker_id, now)
    holders = jobs.device_holders_on(session, worker_id)
    used = {
        device["uuid"]: Use(
            device["utilization"],
            device["utilization"],
            device["memory_used_bytes"],
            holders.get(device["uuid"]),
            device.get("power_watts"),  # an older worker sends none
        )
        for device in devices
    }
    _store(session, worker_id, _FINEST, now - now % _FINEST, used)


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


def _merge_ended(session: Session, worker_id: str, now: int) -> None:
    """Stores the coarser slots of the newest row, if they have ended since."""
    newest = _find_newest(session, worker_id)
    if newest is None:
        return
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
    new = upsert(session, DeviceSample)
    new = new.on_conflict_do_update(
        index_elements=["worker_id", "resolution", "begins"], set_={"devices": new.excluded.devices}
    )
    row = {
        uuid: [use.utilization, use.utilization_max, use.memory_used, use.job_id, use.power_watts]
        for uuid, use in used.items()
    }
    session.execute(new, {"worker_id": worker_id, "resolution": resolution, "begins": begins, "devices": row})
    old = DeviceSample.begins <= begins - _kept_s(resolution)
    session.execute(
        delete(DeviceSample).where(DeviceSample.worker_id == worker_id, DeviceSample.resolution == resolution, old)
    )


def _read_slots(session: Session, worker_id: str, resolution: int, begins: int, ends: int) -> Slots:
    query = select(DeviceSample.begins, DeviceSample.devices).where(
        DeviceSample.worker_id == worker_id,
        DeviceSample.resolution == resolution,
        DeviceSample.begins >= begins,
        DeviceSample.begins < ends,
    )
    return {row.begins: {uuid: Use(*use) for uuid, use in row.devices.items()} for row in session.execute(query)}


def _find_newest(session: Session, worker_id: str) -> int | None:
    newest = select(func.max(DeviceSample.begins))
    return session.scalar(newest.where(DeviceSample.worker_id == worker_id, DeviceSample.resolution == _FINEST))


def _read_now(session: Session) -> int:
    return session.execute(select(now_us())).scalar_one() // 1_000_000


def _kept_s(resolution: int) -> int:
    return int(KEPT[resolution].total_seconds())
