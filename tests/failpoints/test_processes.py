"""A job of real processes, without torch, of which one is killed, or all are delayed, at each failpoint: it ends once,
with every metric and checkpoint."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from store.announcement import Announcement
from store.db.database import Database
from store.db.tables import Job
from tests.databases import Databases
from tests.failpoints import scenes
from tests.failpoints.child import Child, playing, until
from tests.failpoints.house import House
from torchyard.contract.job import JobState
from worker.engines.local import process

SIDES = ("before", "after")
RECORD = ("fsync", "rename", "renamed")
WORKER = [
    *(f"store.{what}.{side}" for what in ("claim", "mark_launched", "store_batch", "end") for side in SIDES),
    *(f"queue.announce.{side}" for side in SIDES),
    *(f"record.{what}.{step}" for what in ("worker", "config", "plan") for step in RECORD),
    *(f"launch.start.{side}" for side in SIDES),
    *(f"blob.{step}" for step in RECORD),
]
STOPPING = [f"record.stop.{step}" for step in RECORD]
SUPERVISOR = [
    *(f"record.{what}.{step}" for what in ("supervisor", "exit") for step in RECORD),
    *(f"supervisor.launch.{side}" for side in SIDES),
    "supervisor.ended",
]
RANK = [
    *(f"record.{what}.{step}" for what in ("ranks", "manifest") for step in RECORD),
    *(f"checkpoint.{step}" for step in ("fsync", "manifest", "rename", "renamed")),
    *(f"events.append.{side}" for side in SIDES),
]
RAISING = [f"record.errors.{step}" for step in RECORD]

STATE = b"state"
MANIFEST = {
    "step": 2,
    "epoch": 1,
    "metrics": {},
    "files": [{"path": "state.pt", "size": len(STATE), "sha256": hashlib.sha256(STATE).hexdigest()}],
}
LAUNCHER = f"""
set -e
cd "$TORCHYARD_RUN_DIR"
while [ ! -e GATE ]; do sleep 0.02; done
mkdir checkpoints/.epoch-1
printf {STATE.decode()} > checkpoints/.epoch-1/state.pt
printf '%s' '{json.dumps(MANIFEST)}' > checkpoints/.epoch-1/manifest.json
mv checkpoints/.epoch-1 checkpoints/epoch-1
for step in 1 2; do
    printf '{{"type": "metric", "time": 1, "step": %s, "values": {{"loss": 0.5}}}}\\n' $step >> events.jsonl
    echo "step $step" >> logs/rank-0.stdout
done
printf '{{"type": "checkpoint", "time": 1, "name": "epoch-1"}}\\n' >> events.jsonl
"""
"""A launcher that is its only rank, and costs little."""
SCRIPT = """
import os
from pathlib import Path
from torchyard.run.eventlog import EventLog
from torchyard.run.publishing import publish
from torchyard.contract.rundir import Env, Manifest, RunDir

run = RunDir.of_job(Path(os.environ[Env.RUN_DIR]))
log = EventLog(run.events, synchronize=lambda: None)
for step in (1, 2):
    log.log({"loss": 0.5}, step=step)
    publish(run.checkpoints, f"step-{step}", {"state.pt": b"state" * step}, Manifest(step=step, files=[]))
    log.checkpoint(f"step-{step}")
    print("step", step)
log.close()
"""
RAISES = SCRIPT + 'if os.environ[Env.ATTEMPT] == "1": raise ValueError("only once")\n'


@dataclass
class Site:
    """A house in which jobs run."""

    house: House
    argv: list[str] = field(default_factory=list[str])

    @property
    def code(self) -> Path:
        return self.house.folder / "code"

    @property
    def gate(self) -> Path:
        return self.house.folder / "gate"

    def job(self, *, script: str = "", **spec: Any) -> str:
        self.code.mkdir()
        (self.code / "train.py").write_text(script)
        (self.code / "launcher.sh").write_text(LAUNCHER.replace("GATE", str(self.gate)))
        self.argv = scenes.ranks(self.code / "train.py") if script else ["/bin/sh", str(self.code / "launcher.sh")]
        return self.house.queue_up(config={"code": f"file://{self.code}"}, max_restarts=2, **spec)

    def daemon(self, plan: str = "") -> AbstractContextManager[Child]:
        return playing(scenes.serve, self.house.settings, 1, 2, self.argv, plan=plan, log=self.house.log)

    def turn(self) -> None:
        """Wakes the daemon, and lets the time of a backoff pass."""
        self.house.write(lambda session: session.execute(update(Job).values(not_before=None)))
        self.house.queue.announce(Announcement(wakes_workers=True))

    def wait(self, job_id: str) -> Job:
        self.until(lambda: JobState(self.house.job(job_id).state).terminal, "the job has ended")
        return self.house.job(job_id)

    def until(self, condition: Callable[[], object], what: str) -> None:
        def look() -> object:
            self.turn()
            return condition()

        until(look, what, every=0.1)

    def check(self, job_id: str) -> None:
        """As of the house, and the checkpoints' bytes are right, and no process is left."""
        self.house.check(job_id)
        for row in self.house.checkpoints(job_id):
            for file in row.files:
                blob = self.house.settings.blobs / file["sha256"][:2] / file["sha256"]
                assert hashlib.sha256(blob.read_bytes()).hexdigest() == file["sha256"]
        self.check_processes(job_id)

    def check_processes(self, job_id: str) -> None:
        for row in self.house.attempts(job_id):
            until(lambda number=row.number: not process.find(job_id, number), "no process is left")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def site(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Generator[Site]:
    databases: Databases = request.getfixturevalue(request.param)
    with databases.migrated() as url, closing(Database(url)) as database:
        site = Site(House(tmp_path, database, redis_url))
        site.house.queue.rebuild(list)
        site.gate.touch()
        yield site
        for job in site.house.jobs():
            for row in site.house.attempts(job.id):
                process.kill_attempt(job.id, row.number)
        site.house.queue.close()


@pytest.mark.parametrize("point", WORKER)
def test_a_daemon_that_starts_again_goes_on_where_it_was_killed(site: Site, point: str) -> None:
    job_id = site.job()
    with site.daemon(f"{point}=kill") as daemon:
        site.until(lambda: not daemon.runs, "the kill")
        assert daemon.wait() == -9
        assert daemon.acted == [point]
    with site.daemon():
        site.wait(job_id)
    site.check(job_id)


@pytest.mark.parametrize("point", STOPPING)
def test_a_cancel_reaches_its_job_though_the_daemon_is_killed(site: Site, point: str) -> None:
    site.gate.unlink()
    job_id = site.job()
    with site.daemon(f"{point}=kill") as daemon:
        site.until(lambda: any(row.launcher for row in site.house.attempts(job_id)), "the job runs")
        scenes.request(site.house.settings, "cancel", job_id)
        site.until(lambda: not daemon.runs, "the kill")
        assert daemon.acted == [point]
    with site.daemon():
        assert site.wait(job_id).state == JobState.CANCELLED
    assert site.house.moves(job_id).count("cancelled") == 1
    assert site.house.held() == {}
    site.check_processes(job_id)


@pytest.mark.parametrize("point", SUPERVISOR)
def test_a_job_whose_supervisor_was_killed(site: Site, point: str) -> None:
    _runs_in_spite_of_a_kill(site, site.job(), point)


@pytest.mark.parametrize("point", RANK)
def test_a_job_whose_rank_was_killed(site: Site, point: str) -> None:
    _runs_in_spite_of_a_kill(site, site.job(script=SCRIPT), point)


@pytest.mark.parametrize("point", RAISING)
def test_a_job_whose_rank_was_killed_while_it_said_why_it_failed(site: Site, point: str) -> None:
    _runs_in_spite_of_a_kill(site, site.job(script=RAISES), point)


@pytest.mark.thorough
@pytest.mark.parametrize("point", [*WORKER, *SUPERVISOR, *RANK, *RAISING])
def test_a_job_of_which_one_step_is_delayed(site: Site, point: str) -> None:
    job_id = site.job(script=RAISES if point in RAISING else SCRIPT if point in RANK else "")
    with site.daemon(f"{point}=delay:0.3") as daemon:
        assert site.wait(job_id).attempt == (2 if point in RAISING else 1)
        assert set(daemon.acted) == {point}
    site.check(job_id)


def test_a_job_whose_programs_are_delayed_everywhere(site: Site) -> None:
    points = [*WORKER, *SUPERVISOR, *RANK, *RAISING]
    job_id = site.job(script=RAISES)
    with site.daemon(";".join(f"{point}=delay:0.03" for point in points)) as daemon:
        assert site.wait(job_id).attempt == 2
        assert set(daemon.acted) == set(points)
    site.check(job_id)


def test_a_cancel_that_is_delayed_everywhere(site: Site) -> None:
    _is_cancelled_in_spite_of_delays(site, STOPPING)


@pytest.mark.thorough
@pytest.mark.parametrize("point", STOPPING)
def test_a_cancel_of_which_one_step_is_delayed(site: Site, point: str) -> None:
    _is_cancelled_in_spite_of_delays(site, [point])


def _is_cancelled_in_spite_of_delays(site: Site, points: list[str]) -> None:
    site.gate.unlink()
    job_id = site.job()
    with site.daemon(";".join(f"{point}=delay:0.2" for point in points)) as daemon:
        site.until(lambda: any(row.launcher for row in site.house.attempts(job_id)), "the job runs")
        scenes.request(site.house.settings, "cancel", job_id)
        assert site.wait(job_id).state == JobState.CANCELLED
        assert set(daemon.acted) == set(points)
    site.check_processes(job_id)


def _runs_in_spite_of_a_kill(site: Site, job_id: str, point: str) -> None:
    with site.daemon(f"{point}=kill") as daemon:
        job = site.wait(job_id)
        assert daemon.acted == [point]
    site.check(job_id)
    # What was killed after it had said all is not missed.
    assert job.attempt == (1 if point == "record.exit.renamed" else 2)
