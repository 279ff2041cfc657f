"""Which worker this is."""

from dataclasses import dataclass
from pathlib import Path

from store.ids import new_id
from torchyard.contract.wire.codec import Record
from torchyard.host.recordfiles import create_record, read_record


def worker_id(path: Path) -> str:
    """Returns this worker's id. It is kept with the data, so that a restarted daemon finds its jobs again.

    Daemons of one pool that start together on several hosts get one id.
    """
    while (record := read_record(path, _Identity)) is None:
        create_record(path, _Identity(id=new_id("wrk")))
    return record.id


def known_worker_id(path: Path) -> str | None:
    """Returns the id that a daemon has kept there, or None."""
    record = read_record(path, _Identity)
    return None if record is None else record.id


@dataclass(frozen=True, kw_only=True)
class _Identity(Record):
    id: str
