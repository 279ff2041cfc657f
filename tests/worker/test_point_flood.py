"""100,000 metric points a second, from a rank's event log to the database."""

from contextlib import closing
import json
from pathlib import Path
from statistics import median
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import select

from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.output.metrics import POINT
from store.tables import PointChunk, Series
from store.worker.verbs import WorkerStore
from tests.databases import SQLiteDatabases
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import wait_for
from tests.worker.attempts.output.relays import little_memory, storing
from torchyard.contract.attempts.rundir import RunDir
from torchyard.run.eventlog import FLUSH_LINES
from worker.attempts.output.relay import Relay
from worker.attempts.records import AttemptRecords

KEYS = 10
RATE = 10_000
"""Steps a second, each with a point of each key."""
WRITER = """
import json, sys, time
from pathlib import Path
from torchyard.run.eventlog import EventLog

def kibibytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

path, (keys, steps, rate, block) = Path(sys.argv[1]), map(int, sys.argv[2:])
log = EventLog(path, synchronize=lambda: None)
log.log({"key-0": 0.0}, step=0)  # imports what the first call needs
log.flush()
path.unlink()
log.close()
log = EventLog(path, synchronize=lambda: None)
Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present size
before, took, began = kibibytes("VmRSS"), [], time.perf_counter()
for step in range(steps):
    while step > (time.perf_counter() - began) * rate: time.sleep(0.001)
    values = {f"key-{key}": float(step * keys + key) for key in range(keys)}
    start = time.process_time()
    log.log(values, step=step)
    took.append(time.process_time() - start)
log.close()
longest = [max(took[first:first + block]) for first in range(0, steps, block)]
print(json.dumps({"grown": kibibytes("VmHWM") - before, "longest": longest}))
"""
"""A rank's program. It measures each call by the CPU time of the process, which a busy machine does not change, and
prints the longest call of each block: one call of a block writes the buffered lines."""


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [4_000, 20_000])
def test_a_flood_of_points_is_stored_completely_in_little_memory_without_slowing_the_rank(
    tmp_path: Path, sqlite: SQLiteDatabases, steps: int
) -> None:
    run = RunDir(tmp_path / "run")
    run.create()
    with sqlite.migrated() as url, closing(Database(url)) as database:
        store = StoreFixture(database)
        claim = store.running(store.submit(), store.worker())
        records = AttemptRecords(WorkerStore(store_on(database), claim.worker_id), claim, leaving=threading.Event())
        records.read()
        relay = Relay(run, BlobFolder(tmp_path / "blobs"), listed=(), world_size=1)
        command = [sys.executable, "-P", "-c", WRITER, str(run.events)]
        with (
            subprocess.Popen(
                [*command, *map(str, (KEYS, steps, RATE, FLUSH_LINES))], stdout=subprocess.PIPE, text=True
            ) as writer,
            little_memory(100),
        ):
            wait_for(lambda: _size(run.events) > 500_000, "a backlog")
            while writer.poll() is None:
                _relay(relay, records)
                time.sleep(0.01)
            _relay(relay, records, final=True)
            assert writer.stdout is not None
            measured = json.load(writer.stdout)
        assert _stored(store) == {
            f"key-{key}": [(step, float(step * KEYS + key)) for step in range(steps)] for key in range(KEYS)
        }
    assert measured["grown"] < 100 * 1024
    quarter = len(measured["longest"]) // 4
    first, last = median(measured["longest"][:quarter]), median(measured["longest"][-quarter:])
    assert last < 2 * first + 0.002


def _relay(relay: Relay, records: AttemptRecords, *, final: bool = False) -> None:
    while (batch := relay.read(final=final)) is not None:
        with storing(relay, batch):
            records.record(batch)


def _stored(store: StoreFixture) -> dict[str, list[tuple[int, float]]]:
    """Returns the step and the value of each stored point by key, in the order of storing."""
    query = select(Series.key, PointChunk.data).join_from(PointChunk, Series).order_by(PointChunk.first)
    found: dict[str, list[tuple[int, float]]] = {}
    for key, data in store.read(lambda session: session.execute(query).all()):
        found.setdefault(key, []).extend((step, value) for step, value, _ in POINT.iter_unpack(data))
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
