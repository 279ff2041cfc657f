"""A current worker adopts the attempts of one from before the rebuild, and works beside it."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
import signal
import subprocess
import sys

import pytest
from sqlalchemy import select

from store.announcement import Announcement
from store.db.database import Database
from store.db.tables import Attempt, Series
from store.queue import Queue
from store.rows import checkpoints, logs, workers
from tests import servers
from tests.e2e.service import until
from tests.migrations import older
from tests.store.fixture import StoreFixture, service_of
from torchyard.contract.job import JobState
from worker.host import process

BEFORE = "fd3a8857677a"
"""The last commit before the rebuild of the worker."""

SCRIPT = """
import pathlib
import time
import torchyard

print("runs", torchyard.__file__)
run = torchyard.init()
state = run.resume()
step = state["step"] if state else 0
while not run.should_stop() and not pathlib.Path("enough").exists():
    step += 1
    print("step", step)
    run.log({"train/loss": 1 / step}, step=step)
    time.sleep(0.05)
run.save_checkpoint({"step": step}, step=step)
"""


@pytest.fixture(scope="session")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    commit = older.git("rev-parse", "--verify", "--quiet", f"{BEFORE}^{{commit}}")
    if not commit:
        pytest.skip(f"the history of this checkout does not reach to {BEFORE}")
    return older.python_of(commit, tmp_path_factory.mktemp("before"))


@dataclass
class AdoptionFixture:
    """A database and a Redis on which workers of both versions run scripts until a gate file exists."""

    folder: Path
    database_url: str
    redis_url: str
    db: StoreFixture
    queue: Queue
    old_python: Path

    def submit(self, name: str) -> str:
        code = self.folder / "code" / name
        code.mkdir(parents=True)
        (code / "train.py").write_text(SCRIPT)
        job_id = self.db.submit(config={"code": f"file://{code}"}, stop_grace="60s")
        self.queue.announce(Announcement(priorities={job_id: 0}))
        self.queue.announce(Announcement(wakes_workers=True))
        return job_id

    def finish(self, name: str) -> None:
        (self.folder / "code" / name / "enough").touch()

    def worker(
        self, python: Path | str, name: str, *, slots: int = 1, end: signal.Signals = signal.SIGTERM
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        folder = self.folder / name
        return older.worker(python, folder, database=self.database_url, redis=self.redis_url, slots=slots, end=end)

    def source(self, job_id: str) -> str:
        """Returns the folder of the job's `torchyard` package."""
        (line,) = [text for text in self._lines(job_id) if text.startswith("runs ")]
        return line.removeprefix("runs ")

    def steps(self, job_id: str) -> list[str]:
        """Returns the lines that the job has printed, one for each step."""
        return [text for text in self._lines(job_id) if text.startswith("step ")]

    def points(self, job_id: str) -> int:
        """Returns the number of its stored loss points."""
        count = select(Series.count).where(Series.job_id == job_id, Series.key == "train/loss")
        return self.db.read(lambda session: session.scalars(count).one())

    def newest_step(self, job_id: str) -> int:
        return self.db.read(lambda session: checkpoints.newest_first(session, job_id))[0].step

    def attempts(self, job_id: str) -> list[Attempt]:
        found = select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)
        return list(self.db.read(lambda session: session.scalars(found).all()))

    def trains(self, job_id: str, *, beyond: int = 0) -> Callable[[], bool]:
        return lambda: len(self.steps(job_id)) > beyond

    def ended(self, *job_ids: str) -> Callable[[], bool]:
        return lambda: all(JobState(self.db.job(job_id).state).terminal for job_id in job_ids)

    def _lines(self, job_id: str) -> list[str]:
        found = self.db.read(lambda session: logs.after(session, job_id, line=0, limit=100_000).rows)
        return [line.text for line in found]


@pytest.fixture
def fixture(database_url: str, database: Database, tmp_path: Path, old_python: Path) -> Generator[AdoptionFixture]:
    with servers.redis_server(tmp_path) as redis, closing(Queue(redis, service=service_of(database))) as queue:
        fixture = AdoptionFixture(tmp_path, database_url, redis, StoreFixture(database), queue, old_python)
        yield fixture
        for folder in tmp_path.glob("code/*/train.py"):
            fixture.finish(folder.parent.name)  # whatever a test that failed has left comes to its end


on_sqlite = pytest.mark.parametrize("databases", ["sqlite"], indirect=True)


@on_sqlite
@pytest.mark.thorough
def test_a_current_worker_completes_an_attempt_of_an_older_one(fixture: AdoptionFixture) -> None:
    finishes, cancelled = fixture.submit("finishes"), fixture.submit("cancelled")
    with fixture.worker(fixture.old_python, "box", slots=2):
        for job_id in (finishes, cancelled):
            until(fixture.trains(job_id), what=f"{job_id} trains")
    left_at = {job_id: len(fixture.steps(job_id)) for job_id in (finishes, cancelled)}
    supervisors = {job_id: fixture.attempts(job_id)[0].launcher for job_id in left_at}
    old_source = str(fixture.old_python.parents[2] / "source")
    assert all(old_source in fixture.source(job_id) for job_id in left_at)

    with fixture.worker(sys.executable, "box", slots=2, end=signal.SIGINT):
        for job_id, seen in left_at.items():
            until(fixture.trains(job_id, beyond=seen), what=f"{job_id} goes on")
        fixture.db.cancel(cancelled)
        fixture.queue.announce(Announcement(wakes_workers=True))
        until(fixture.ended(cancelled), what="the cancel")
        fixture.finish("finishes")
        until(fixture.ended(finishes), what="the end")

    assert fixture.db.moves(finishes) == ["queued", "starting", "running", "succeeded"]
    assert fixture.db.moves(cancelled) == ["queued", "starting", "running", "cancelled"]
    for job_id in (finishes, cancelled):
        last = fixture.newest_step(job_id)
        assert fixture.steps(job_id) == [f"step {step}" for step in range(1, last + 1)]
        assert fixture.points(job_id) == last
        (attempt,) = fixture.attempts(job_id)
        assert (attempt.launcher or {})["pid"] == (supervisors[job_id] or {})["pid"]
    assert fixture.db.held() == {}


@pytest.mark.thorough
def test_an_older_worker_beside_a_current_one_completes_jobs(fixture: AdoptionFixture) -> None:
    with fixture.worker(fixture.old_python, "old"), fixture.worker(sys.executable, "new"):
        until(lambda: len(fixture.db.read(workers.list_all)) == 2, what="both workers are there")
        submitted = {name: fixture.submit(name) for name in ("one", "two")}
        for job_id in submitted.values():
            until(fixture.trains(job_id), what=f"{job_id} trains")
        for name in submitted:
            fixture.finish(name)
        until(fixture.ended(*submitted.values()), what="the jobs have ended")
    for job_id in submitted.values():
        assert fixture.db.moves(job_id) == ["queued", "starting", "running", "succeeded"]
        assert fixture.points(job_id) == fixture.newest_step(job_id)
    took = {attempt.worker_id for job_id in submitted.values() for attempt in fixture.attempts(job_id)}
    assert len(took) == 2


@pytest.mark.thorough
@on_sqlite
@pytest.mark.parametrize("lost_is_old", [True, False])
def test_a_job_of_a_lost_worker_continues_on_one_of_another_version(
    fixture: AdoptionFixture, lost_is_old: bool
) -> None:
    pythons = (fixture.old_python, sys.executable) if lost_is_old else (sys.executable, fixture.old_python)
    job_id = fixture.submit("lost")
    with fixture.worker(pythons[0], "first", end=signal.SIGKILL):
        until(fixture.trains(job_id), what="it trains")
    with fixture.worker(pythons[1], "second", end=signal.SIGINT):
        until(lambda: len(fixture.attempts(job_id)) == 2, what="the rescue, once the lease has expired")
        until(lambda: fixture.db.job(job_id).state == JobState.RUNNING, what="the second attempt")
        fixture.finish("lost")
        until(fixture.ended(job_id), what="the end")
    first, second = fixture.attempts(job_id)
    assert (first.end_reason, second.end_reason) == ("worker_lost", "completed")
    assert first.worker_id != second.worker_id
    until(lambda: process.find(job_id, 1) == [], what="the end of the first attempt's processes, which nobody stopped")
