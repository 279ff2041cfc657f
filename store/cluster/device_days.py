"""What owners had of the devices, by day. Each attempt is added when it ends, in the transaction that ends it.

What open attempts have had so far is added to what is read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.orm import Session

from store import pages
from store.cluster.usage_facts import DAY_US, Figures, Held, UsageFacts
from store.db.database import now_us
from store.db.upsert import upsert
from store.pages import FactPage
from store.tables import Allocation, Attempt, AttemptUse, DeviceDay, Job, Usage
from torchyard.contract.wire.text import storable

ALL_JOBS = ""
"""Stands for a label in rows about all jobs of an owner."""
Key = tuple[str, str]
"""An owner and a label, `ALL_JOBS` for all jobs. Rows of usage are sorted by it."""

_SUMS = tuple(func.sum(getattr(DeviceDay, name)).label(name) for name in Figures._fields)
_HELD = (
    select(
        *(Job.owner, Job.labels, Allocation.kind, func.count().label("devices"), Attempt.started_at.label("began")),
        *(AttemptUse.measured_us, AttemptUse.busy_us, AttemptUse.idle_us),
    )
    .join(Attempt, Attempt.id == Allocation.attempt_id)
    .join(Job, Job.id == Attempt.job_id)
    .outerjoin(AttemptUse, AttemptUse.attempt_id == Attempt.id)
    .where(Allocation.released_at.is_(None), Attempt.pool_devices == 0)
    .group_by(Attempt.id, Job.id, AttemptUse.attempt_id, Allocation.kind)
)
_IN_POOLS = (
    select(
        *(Job.owner, Job.labels, Job.device_request.label("kind"), Attempt.pool_devices.label("devices")),
        Attempt.running_at.label("began"),
    )
    .join(Job, Job.id == Attempt.job_id)
    .where(Attempt.ended_at.is_(None), Attempt.pool_devices > 0, Attempt.running_at.is_not(None))
)
_Days = defaultdict[int, defaultdict[str, Figures]]
_Totals = defaultdict[str, Figures]


@dataclass(frozen=True)
class Asked:
    """Which rows are wanted."""

    by_label: bool
    """A row for each label of an owner, instead of one for each owner."""
    owner: str | None
    """Only this owner's."""
    days: int
    """How many days, up to today."""


def add(session: Session, owner: str, labels: Mapping[str, Any], held: Iterable[Held]) -> None:
    """Adds what an attempt had that has just ended, for its owner and for each label of its job."""
    counted = {
        (label, day, part.kind): figures
        for part in held
        for day, figures in part.by_day().items()
        for label in (ALL_JOBS, *_texts_of(labels))
    }
    if not counted:
        return
    # Always in one order: two attempts that wait for each other's rows would deadlock.
    rows = [
        {"owner": owner, "label": label, "day": day, "kind": kind, **figures._asdict()}
        for (label, day, kind), figures in sorted(counted.items())
    ]
    new = upsert(session, DeviceDay)
    sums = {name: getattr(DeviceDay, name) + new.excluded[name] for name in Figures._fields}
    session.execute(new.on_conflict_do_update(index_elements=["owner", "label", "day", "kind"], set_=sums), rows)


def list_usage(session: Session, asked: Asked, *, after: Key | None, limit: int) -> FactPage[UsageFacts]:
    """Returns rows by owner and label; with `after`, only those after it."""
    now = session.execute(select(now_us())).scalar_one()
    live = _list_live(session, asked, now)
    stored = _stored_labels(session, asked, after, limit + 1) if asked.by_label else _stored_owners(session, asked)
    keys = sorted(key for key in {*stored, *live} if after is None or key > after)
    page = pages.first(keys[: limit + 1], limit)
    today = now // DAY_US
    shown = range(today - asked.days + 1, today + 1)
    days, totals = _figures(session, asked, page.items, shown)
    for key in page.items:
        for held in live.get(key, ()):
            _add(held, days[key], totals[key], shown)
    rows = [UsageFacts(*key, dict(sorted(days[key].items())), totals[key]) for key in page.items]
    return FactPage(rows, page.has_more)


def _texts_of(labels: Mapping[str, Any]) -> list[str]:
    """Returns the labels of a job as the table names them: `key=value` each."""
    return sorted({storable(f"{key}={value}")[:300] for key, value in labels.items()})


def _list_live(session: Session, asked: Asked, now: int) -> Mapping[Key, Sequence[Held]]:
    """Returns what open attempts have had until `now`. Their number is limited by that of the devices."""
    by_key: dict[Key, list[Held]] = defaultdict(list)
    for every in (_HELD, _IN_POOLS):
        query = every if asked.owner is None else every.where(Job.owner == asked.owner)
        for owner, labels, kind, devices, began, *use in session.execute(query):
            held = Held(kind, devices, began, now, *(figure or 0 for figure in use))
            for label in _texts_of(labels) if asked.by_label else [ALL_JOBS]:
                by_key[owner, label].append(held)
    return by_key


def _stored_owners(session: Session, asked: Asked) -> list[Key]:
    """Returns all owners of ended attempts, each of whom has rows about fair shares, too, which are few."""
    query = (
        select(Usage.owner)
        .distinct()
        .where(select(DeviceDay.day).where(DeviceDay.owner == Usage.owner, DeviceDay.label == ALL_JOBS).exists())
    )
    query = query if asked.owner is None else query.where(Usage.owner == asked.owner)
    return [(owner, ALL_JOBS) for owner in session.scalars(query)]


def _stored_labels(session: Session, asked: Asked, after: Key | None, most: int) -> list[Key]:
    """Returns the first labels in the order of the primary key."""
    key = (DeviceDay.owner, DeviceDay.label)
    query = select(*key).distinct().where(DeviceDay.label != ALL_JOBS).order_by(*key).limit(most)
    query = query if asked.owner is None else query.where(DeviceDay.owner == asked.owner)
    query = query if after is None else query.where(tuple_(*key) > tuple_(*after))
    return [(owner, label) for owner, label in session.execute(query)]


def _figures(
    session: Session, asked: Asked, keys: Sequence[Key], shown: range
) -> tuple[Mapping[Key, _Days], Mapping[Key, _Totals]]:
    """Returns what ended attempts had: of each key by kind on the shown days, and by kind on all days."""
    days: dict[Key, _Days] = {key: defaultdict(lambda: defaultdict(Figures)) for key in keys}
    totals: dict[Key, _Totals] = {key: defaultdict(Figures) for key in keys}
    if not keys:
        return days, totals
    of_key = (DeviceDay.owner, DeviceDay.label, DeviceDay.kind)
    by_day = select(*of_key, DeviceDay.day, *(getattr(DeviceDay, name) for name in Figures._fields))
    by_day = by_day.where(_among(asked, keys), DeviceDay.day.between(shown[0], shown[-1]))
    for owner, label, kind, day, *figures in session.execute(by_day):
        days[owner, label][day][kind] = Figures(*figures)
    in_all = select(*of_key, *_SUMS).where(_among(asked, keys)).group_by(*of_key)
    for row in session.execute(in_all):
        sums = (int(getattr(row, name)) for name in Figures._fields)  # PostgreSQL's are decimals
        totals[row.owner, row.label][row.kind] = Figures(*sums)
    return days, totals


def _among(asked: Asked, keys: Sequence[Key]) -> ColumnElement[bool]:
    """Returns the condition that a row is of one of the keys, between the least and greatest of which are no others."""
    if asked.by_label:
        key = tuple_(DeviceDay.owner, DeviceDay.label)
        return (DeviceDay.label != ALL_JOBS) & (key >= tuple_(*keys[0])) & (key <= tuple_(*keys[-1]))
    return (DeviceDay.label == ALL_JOBS) & DeviceDay.owner.in_([owner for owner, _ in keys])


def _add(held: Held, days: _Days, totals: _Totals, shown: range) -> None:
    for day, figures in held.by_day().items():
        totals[held.kind] = totals[held.kind].plus(figures)
        if day in shown:
            days[day][held.kind] = days[day][held.kind].plus(figures)
