"""What owners had of the devices, by day. Each attempt is added when it ends, in the transaction that ends it."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from store.cluster.usage_facts import Figures, Held
from store.db.upsert import upsert
from store.tables import DeviceDay
from torchyard.contract.text import storable

ALL_JOBS = ""
"""Stands for a label in rows about all jobs of an owner."""


def add(session: Session, owner: str, labels: Mapping[str, Any], held: Iterable[Held]) -> None:
    """Adds what an attempt had that has just ended, for its owner and for each label of its job."""
    counted = {
        (label, day, part.kind): figures
        for part in held
        for day, figures in part.by_day().items()
        for label in (ALL_JOBS, *texts_of(labels))
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


def texts_of(labels: Mapping[str, Any]) -> list[str]:
    """Returns the labels of a job as the table names them: `key=value` each."""
    return sorted({storable(f"{key}={value}")[:300] for key, value in labels.items()})
