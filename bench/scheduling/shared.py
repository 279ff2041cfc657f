"""The CPU time to place jobs on many workers: `python -m bench.scheduling.shared`.

Each worker has one CPU slot, and as many jobs of 8 owners wait. In one run each worker plans the whole cluster, as the
workers on hosts of the service do. In the other all ask the service, which makes one plan for the workers that wait.
The time is that of the process, on SQLite, until all jobs are claimed.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
import threading
import time

from bench import table
from bench.table import Row
from store.attempts import lease
from store.cluster import workers
from store.db.database import Database
from store.store import Store
from store.worker.passes import SharedPasses
from store.worker.placing import Placer
from tests.databases import migrated_sqlite
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.cluster.devices import DeviceReport

COUNTS = (1, 16, 64)
OWNERS = 8
REPEATS = 5
_SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")


def measure() -> Iterator[Row]:
    for count in COUNTS:
        shared = [_seconds(count, _ask_service) for _ in range(REPEATS)]
        alone = [_seconds(count, _ask_each) for _ in range(REPEATS)]
        what = f"{count} workers, {count} jobs: the service plans"
        yield Row(what, "ms of CPU time", shared, "each worker plans", alone, ratio_at_most=1.1)


def _seconds(count: int, place: Callable[[Store, list[str]], None]) -> float:
    with _cluster(count) as (store, ids):
        began = time.process_time()
        place(store, ids)
        took = time.process_time() - began
        with store.read() as session:
            held = sum(len(lease.list_open(session, worker_id)) for worker_id in ids)
        assert held == count, (held, count)
        return took * 1000


@contextmanager
def _cluster(count: int) -> Generator[tuple[Store, list[str]]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "database"
        path.write_bytes(migrated_sqlite())
        with closing(Database(f"sqlite:///{path}")) as database:
            db = StoreFixture(database)
            ids = [db.worker(f"box-{number}") for number in range(count)]
            for worker_id in ids:
                db.write(lambda session, own=worker_id: workers.heartbeat(session, own, devices=[_SLOT.to_dict()]))
            for number in range(count):
                db.submit(owner=f"owner-{number % OWNERS}")
            yield store_on(database), ids


def _ask_each(store: Store, ids: list[str]) -> None:
    for worker_id in ids:
        for _ in Placer(store).claims({worker_id: [_SLOT]}, may_claim=lambda: True):
            pass


def _ask_service(store: Store, ids: list[str]) -> None:
    passes = SharedPasses(store)
    threads = [threading.Thread(target=passes.claim, args=(worker_id, [_SLOT])) for worker_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    table.main(measure)
