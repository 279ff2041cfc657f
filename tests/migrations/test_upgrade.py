"""Programs from before the newest migration work on the new tables, beside new ones."""

from contextlib import ExitStack
from pathlib import Path
import sys

import pytest

from store.announcement import Announcement
from store.db.database import Database
from store.queue import Queue
from store.rows import jobs, workers
from tests import servers
from tests.e2e.service import until
from tests.migrations import older
from tests.store.fixture import StoreFixture, service_of
from torchyard.contract.job import JobState

REVISIONS = "migrations/versions"
SCRIPT = """
import os, time, torchyard
while not os.path.exists("go"): time.sleep(0.02)
run = torchyard.init()
for step in range(1, 4):
    run.log({"train/loss": 1 / step}, step=step)
run.save_checkpoint({"step": 3}, step=3)
"""


def _before() -> str:
    """Returns the last commit without the newest revision; empty if the history is too short."""
    newest = max(path.name for path in (older.ROOT / REVISIONS).glob("[0-9]*.py"))
    added = older.git("log", "--diff-filter=A", "--format=%H", "-1", "--", f"{REVISIONS}/{newest}")
    return older.git("rev-parse", "--verify", "--quiet", f"{added}^") if added else ""


@pytest.fixture(scope="session")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes an interpreter that imports the project from before the newest migration."""
    commit = _before()
    if not commit:
        pytest.skip("the history of this checkout does not reach to before the newest migration")
    return older.python_of(commit, tmp_path_factory.mktemp("before"))


@pytest.mark.parametrize("databases", [pytest.param("sqlite", marks=pytest.mark.thorough), "postgresql"], indirect=True)
def test_the_worker_before_the_newest_migration_runs_jobs_beside_a_new_one(
    old_python: Path, database_url: str, database: Database, tmp_path: Path
) -> None:
    code, blobs = tmp_path / "code", tmp_path / "blobs"
    code.mkdir()
    blobs.mkdir()
    (code / "train.py").write_text(SCRIPT)
    db = StoreFixture(database)
    with servers.redis_server(tmp_path) as redis, ExitStack() as running:
        queue = Queue(redis, service=service_of(database))
        running.callback(queue.close)
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "blobs").symlink_to(blobs)
        for name, python in (("old", old_python), ("new", sys.executable)):
            running.enter_context(older.worker(python, tmp_path / name, database=database_url, redis=redis))
        until(lambda: len(db.read(workers.list_all)) == 2, what="both workers are there")
        # Each worker has one slot, so each takes one.
        submitted = [db.submit(config={"code": f"file://{code}"}) for _ in range(2)]
        for job_id in submitted:
            queue.announce(Announcement(priorities={job_id: 0}))
        queue.announce(Announcement(wakes_workers=True))

        def started() -> bool:
            return all(JobState(db.job(job_id).state) is not JobState.QUEUED for job_id in submitted)

        def ended() -> bool:
            return all(JobState(db.job(job_id).state).terminal for job_id in submitted)

        until(started, what="the jobs have started")  # else one worker could run both, one after the other
        (code / "go").touch()
        until(ended, what="the jobs have ended")
    for job_id in submitted:
        assert db.moves(job_id) == ["queued", "starting", "running", "succeeded"]
    took = db.read(lambda session: {jobs.get(session, job_id).devices[0]["worker"] for job_id in submitted})
    assert len(took) == 2
