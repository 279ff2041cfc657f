"""Programs from before the newest migration work on the new tables, beside new ones."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
import os
from pathlib import Path
import subprocess
import sys
import sysconfig
import tarfile

import pytest

from store.db.database import Database
from store.news import News
from store.queue import Queue
from store.rows import jobs, workers
from tests import servers
from tests.e2e.service import until
from tests.store.yard import Yard
from torchyard.job import JobState

ROOT = Path(__file__).parents[2]
REVISIONS = "migrations/versions"
SCRIPT = """
import torchyard
run = torchyard.init()
for step in range(1, 4):
    run.log({"train/loss": 1 / step}, step=step)
run.save_checkpoint({"step": 3}, step=3)
"""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _before() -> str:
    """The last commit without the newest revision; empty where the history does not reach that far."""
    newest = max(path.name for path in (ROOT / REVISIONS).glob("[0-9]*.py"))
    added = _git("log", "--diff-filter=A", "--format=%H", "-1", "--", f"{REVISIONS}/{newest}")
    return _git("rev-parse", "--verify", "--quiet", f"{added}^") if added else ""


@pytest.fixture(scope="session")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that imports the project as it was before the newest migration."""
    commit = _before()
    if not commit:
        pytest.skip("the history of this checkout does not reach to before the newest migration")
    folder = tmp_path_factory.mktemp("before")
    archive = folder / "source.tar"
    assert _git("archive", f"--output={archive}", commit, "--", "torchyard", "store", "worker", "trainer", "api") == ""
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # The editable install of today's project is a .pth file, which is not read from a folder that one names.
    (site / "before.pth").write_text(f"{folder / 'source'}\n{sysconfig.get_path('purelib')}\n")
    return folder / "venv" / "bin" / "python"


@contextmanager
def _worker(python: Path | str, folder: Path, *, database: str, redis: str) -> Generator[subprocess.Popen[bytes]]:
    folder.mkdir()
    settings = {"DATA_DIR": folder, "DATABASE_URL": database, "REDIS_URL": redis, "CPU_SLOTS": 1}
    env = {**os.environ, **{f"TORCHYARD_{name}": str(value) for name, value in settings.items()}}
    env["TORCHYARD_ALLOW_PATHS"] = str(folder.parent)
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen([python, "-P", "-m", "worker"], env=env, cwd=folder, stdout=log, stderr=log)
    try:
        yield worker
    finally:
        worker.terminate()
        assert worker.wait(60) == 0, (folder / "log").read_text()


def test_the_worker_before_the_newest_migration_runs_jobs_beside_a_new_one(
    old_python: Path, database_url: str, database: Database, tmp_path: Path
) -> None:
    found = subprocess.run(
        [old_python, "-P", "-c", "import store; print(store.__file__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not Path(found.stdout.strip()).is_relative_to(ROOT)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    yard = Yard(database)
    with servers.redis_server(tmp_path) as redis, ExitStack() as running:
        queue = Queue(redis)
        running.callback(queue.close)
        for name, python in (("old", old_python), ("new", sys.executable)):
            running.enter_context(_worker(python, tmp_path / name, database=database_url, redis=redis))
        until(lambda: len(yard.read(workers.every)) == 2, what="both workers are there")
        # Each worker has one slot, so each takes one.
        submitted = [yard.submit(config={"code": f"file://{code}"}) for _ in range(2)]
        for job_id in submitted:
            queue.tell(News(places={job_id: 0}))
        queue.tell(News(ring=True))

        def ended() -> bool:
            return all(JobState(yard.job(job_id).state).terminal for job_id in submitted)

        until(ended, what="the jobs have ended")
    for job_id in submitted:
        assert yard.moves(job_id) == ["queued", "starting", "running", "succeeded"]
    took = yard.read(lambda session: {jobs.get(session, job_id).devices[0]["worker"] for job_id in submitted})
    assert len(took) == 2
