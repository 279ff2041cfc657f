"""A worker finds the processes without a name that a killed supervisor of its own leaves, and only those."""

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
import functools
import itertools
import os
from pathlib import Path
import signal

import pytest
from sqlalchemy import select

from store.db.database import Database
from store.tables import Attempt
from tests import forks, servers
from tests.databases import SQLiteDatabases
from tests.forked import ForkedProgram
from tests.processes import kill_attempt
from tests.store.fixture import StoreFixture
from tests.worker.attempt import STAND_IN, named_inside, rank_of, wait_for
from tests.worker.engines.local.warm.light_process import LightWarmProcess
from tests.worker.programs import HAS_DAEMONS
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import read_record
from worker.engines.local import engine
from worker.engines.local.warm.process import TITLE
from worker.host import orphans, process

SECRET = "only the services know it"
ONCE = "import os, sys\nif os.environ['TORCHYARD_ATTEMPT'] != '1': sys.exit()\n" + HAS_DAEMONS

forks.preload("worker.daemon", __name__)


@dataclass
class Running:
    """The processes of a job's first attempt."""

    job_id: str
    supervisor: ProcessIdentity
    rank: ProcessIdentity
    named: ProcessIdentity
    nameless: ProcessIdentity

    @classmethod
    def of(cls, run: RunDir) -> "Running":
        wait_for((run.job / "ready-0").exists, "the rank's daemons")
        supervisor = read_record(run.supervisor, ProcessIdentity)
        assert supervisor is not None
        daemons = [named_inside(int((run.job / name).read_text()), supervisor) for name in ("named", "nameless")]
        return cls(run.root.parent.name, supervisor, rank_of(run), *daemons)

    def alive(self) -> list[bool]:
        return [process.is_alive(item) for item in (self.supervisor, self.rank, self.named, self.nameless)]

    def kill(self) -> None:
        for item in (self.supervisor, self.rank, self.named, self.nameless):
            process.send(item, signal.SIGKILL)


@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.thorough), "auto"])
def test_the_processes_of_a_killed_supervisor_end_and_other_jobs_go_on(
    tmp_path: Path, sqlite: SQLiteDatabases, launcher: str
) -> None:
    """With `auto`, the warm process that forked the supervisors is killed, so they become children of the worker."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(ONCE)
    started: list[Running] = []
    with sqlite.migrated() as url, closing(Database(url)) as database, servers.redis_server(tmp_path) as redis:
        store = StoreFixture(database)
        jobs = [store.submit(config={"code": f"file://{tmp_path / 'code'}"}) for _ in range(2)]
        try:
            with _worker(tmp_path, url, redis, launcher=launcher) as worker:
                started += [Running.of(RunDir(tmp_path / "data" / "runs" / job_id / "1")) for job_id in jobs]
                broken, sound = started
                if launcher == "auto":
                    _kill_warm_process(worker.pid)
                process.send(broken.supervisor, signal.SIGKILL)
                process.send(broken.rank, signal.SIGKILL)
                wait_for(lambda: _has_ended(store, broken.job_id), "the end of the attempt")
                assert broken.alive() == [False] * 4
                assert sound.alive() == [True] * 4
                wait_for(lambda: not _zombies_of(worker.pid), "no zombie is left")
        finally:
            for running in started:
                running.kill()
            for job_id, number in itertools.product(jobs, (1, 2)):
                kill_attempt(job_id, number)


def _has_ended(store: StoreFixture, job_id: str) -> bool:
    query = select(Attempt.ended_at).where(Attempt.job_id == job_id, Attempt.number == 1)
    return store.read(lambda session: session.scalars(query).one()) is not None


@contextmanager
def _worker(folder: Path, database: str, redis: str, *, launcher: str) -> Generator[ForkedProgram]:
    environment = {
        "PATH": os.environ["PATH"],
        "TORCHYARD_DATA_DIR": str(folder / "data"),
        "TORCHYARD_DATABASE_URL": database,
        "TORCHYARD_REDIS_URL": redis,
        "TORCHYARD_ALLOW_PATHS": str(folder / "code"),
        "TORCHYARD_CPU_SLOTS": "2",
        "TORCHYARD_LAUNCHER": launcher,
        "TORCHYARD_S3_SECRET_KEY": SECRET,
    }
    ranks = [*STAND_IN, "1", str(folder / "code" / "train.py")]
    prepare = functools.partial(_prepare, ranks)
    worker = ForkedProgram("worker", env=environment, cwd=folder, log=folder / "log", prepare=prepare)
    try:
        yield worker
    finally:
        worker.kill()


def _prepare(ranks: Sequence[str]) -> None:
    """Has the worker start a light warm process, and the command `ranks` instead of torchrun."""
    orphans.start = LightWarmProcess().start
    engine.TorchrunLauncher = lambda: TorchrunStandIn(ranks)  # type: ignore[assignment]


def _kill_warm_process(worker: int) -> None:
    below = process.descendants(worker)
    titles = {item: Path(f"/proc/{item.pid}/cmdline").read_bytes().rstrip(b"\0").decode() for item in below}
    (found,) = [item for item, title in titles.items() if title == TITLE]
    assert (_memory_contains(worker, SECRET), _memory_contains(found.pid, SECRET)) == (True, False)
    process.send(found, signal.SIGKILL)
    wait_for(lambda: not process.is_alive(found), "the warm process's end")


def _memory_contains(pid: int, text: str) -> bool:
    """Returns whether `text` is in the private memory of a process."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            bounds, mode, *_ = line.split()
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if "rw" not in mode:
                continue
            memory.seek(start)
            with suppress(OSError):  # it is not mapped any more
                if text.encode() in memory.read(end - start):
                    return True
    return False


def _zombies_of(pid: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state == b"Z" and int(parent) == pid:
            found.append(int(entry.name))
    return found
