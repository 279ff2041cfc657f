"""Jobs of real processes without torch: at each failpoint one process is killed, or all are delayed. The job ends once,
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
from store.tables import Job
from tests import line
from tests.databases import Databases
from tests.failpoints import actions
from tests.failpoints.armed import ArmedProcess, started, until
from tests.failpoints.fixture import FailpointFixture
from tests.processes import kill_attempt
from torchyard.contract.states import JobState
from torchyard.run.images import picture_bytes
from worker.host import process

SIDES = ("before", "after")
RECORD = ("fsync", "rename", "renamed")
WORKER = [
    *(f"store.{what}.{side}" for what in ("claim", "store_batch", "end") for side in SIDES),
    *(f"queue.announce.{side}" for side in SIDES),
    *(f"record.{what}.{step}" for what in ("worker", "config", "plan") for step in RECORD),
    *(f"launch.start.{side}" for side in SIDES),
    *(f"blob.{step}" for step in RECORD),
]
SILENT = [f"store.mark_launched.{side}" for side in SIDES]
"""Where only an attempt comes by that writes nothing for a while: otherwise another write stores the same."""
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
while [ ! -e GATE ]; do sleep 0.2; done
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
PICTURE = picture_bytes([[0, 255]])
SHOWS = f"""
mkdir "$TORCHYARD_RUN_DIR/media"
printf '{"".join(f"{chr(92)}{byte:03o}" for byte in PICTURE)}' > "$TORCHYARD_RUN_DIR/media/a.png"
item='{{"type": "media", "time": 1, "key": "a", "kind": "image", "step": 1, "files": {{"image": "a.png"}}, "number": '
for number in 0 1; do
    echo "$item$number}}" >> "$TORCHYARD_RUN_DIR/events.jsonl"
done
"""
"""Begins a launcher that shows two pictures before all else."""
SHOWN = ["blob.renamed", "store.store_batch.before"]
SHOWN_TOO = ["blob.fsync", "blob.rename", "store.store_batch.after"]
SCRIPT = """
import os
from pathlib import Path
from torchyard.run.eventlog import EventLog
from torchyard.run.publishing import publish
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import Env, RunDir

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
class ProcessFixture:
    """A failpoint fixture in which jobs run."""

    service: FailpointFixture
    argv: list[str] = field(default_factory=list[str])

    @property
    def code(self) -> Path:
        return self.service.folder / "code"

    @property
    def gate(self) -> Path:
        return self.service.folder / "gate"

    def job(self, *, script: str = "", shows: bool = False, **spec: Any) -> str:
        self.code.mkdir()
        (self.code / "train.py").write_text(script)
        launcher = f"{SHOWS if shows else ''}{LAUNCHER.replace('GATE', str(self.gate))}"
        (self.code / "launcher.sh").write_text(launcher)
        self.argv = actions.ranks(self.code / "train.py") if script else ["/bin/sh", str(self.code / "launcher.sh")]
        return self.service.submit_queued(config={"code": f"file://{self.code}"}, max_restarts=2, **spec)

    def daemon(self, plan: str = "") -> AbstractContextManager[ArmedProcess]:
        return started(actions.run_daemon, self.service.settings, 1, 2, self.argv, plan=plan, log=self.service.log)

    def turn(self) -> None:
        """Wakes the daemon and ends the backoff of jobs, which Redis would else learn from the next sweep."""
        resting = [job.id for job in self.service.jobs() if job.not_before is not None]
        if resting:
            self.service.write(lambda session: session.execute(update(Job).values(not_before=None)))
            self.service.queue.announce(line.told(*map(self.service.job, resting)))
        self.service.queue.announce(Announcement(wakes_workers=True))

    def wait(self, job_id: str) -> Job:
        self.until(lambda: JobState(self.service.job(job_id).state).terminal, "the job has ended")
        return self.service.job(job_id)

    def until(self, condition: Callable[[], object], what: str) -> None:
        def look() -> object:
            self.turn()
            return condition()

        until(look, what, every=0.1)

    def check(self, job_id: str) -> None:
        """Does the fixture's check, and checks the checkpoints' bytes and that no process is left."""
        self.service.check(job_id)
        for row in self.service.checkpoints(job_id):
            for file in row.files:
                blob = self.service.settings.blobs / file["sha256"][:2] / file["sha256"]
                assert hashlib.sha256(blob.read_bytes()).hexdigest() == file["sha256"]
        self.check_processes(job_id)

    def check_processes(self, job_id: str) -> None:
        for row in self.service.attempts(job_id):
            until(lambda number=row.number: not process.find(job_id, number), "no process is left")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def host(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Generator[ProcessFixture]:
    databases: Databases = request.getfixturevalue(request.param)
    with databases.migrated() as url, closing(Database(url)) as database:
        host = ProcessFixture(FailpointFixture(tmp_path, database, redis_url))
        host.gate.touch()
        yield host
        for job in host.service.jobs():
            for row in host.service.attempts(job.id):
                kill_attempt(job.id, row.number)
        host.service.queue.close()


@pytest.mark.parametrize("point", WORKER)
def test_a_restarted_daemon_continues_after_a_kill(host: ProcessFixture, point: str) -> None:
    job_id = host.job()
    with host.daemon(f"{point}=kill") as daemon:
        host.until(lambda: not daemon.runs, "the kill")
        assert daemon.wait() == -9
        assert daemon.acted == [point]
    with host.daemon():
        host.wait(job_id)
    host.check(job_id)


@pytest.mark.parametrize("point", [*SHOWN, *(pytest.param(point, marks=pytest.mark.thorough) for point in SHOWN_TOO)])
def test_pictures_are_stored_once_although_the_daemon_is_killed(host: ProcessFixture, point: str) -> None:
    job_id = host.job(shows=True)
    with host.daemon(f"{point}=kill") as daemon:
        host.until(lambda: not daemon.runs, "the kill")
        assert daemon.acted == [point]
    with host.daemon():
        host.wait(job_id)
    host.check(job_id)
    found = host.service.everything()
    assert sorted(row["number"] for row in found["media"]) == [0, 1]
    assert {row["sha256"] for row in found["media_pictures"]} == {hashlib.sha256(PICTURE).hexdigest()}
    for row in found["media_pictures"]:
        assert (host.service.settings.blobs / row["sha256"][:2] / row["sha256"]).read_bytes() == PICTURE
    assert [event.data["count"] for event in host.service.events(job_id) if event.type == "media"] == [2]


@pytest.mark.parametrize("point", SILENT)
def test_a_restarted_daemon_finds_what_was_started_whether_or_not_it_is_stored(
    host: ProcessFixture, point: str
) -> None:
    host.gate.unlink()
    job_id = host.job()
    with host.daemon(f"{point}=kill") as daemon:
        host.until(lambda: not daemon.runs, "the kill")
        assert daemon.acted == [point]
    (attempt,) = host.service.attempts(job_id)
    assert (attempt.launcher is not None) == point.endswith("after")
    host.gate.touch()
    with host.daemon():
        assert host.wait(job_id).attempt == 1
    host.check(job_id)


@pytest.mark.parametrize("point", STOPPING)
def test_a_cancel_reaches_its_job_although_the_daemon_is_killed(host: ProcessFixture, point: str) -> None:
    host.gate.unlink()
    job_id = host.job()
    with host.daemon(f"{point}=kill") as daemon:
        host.until(lambda: any(row.launcher for row in host.service.attempts(job_id)), "the job runs")
        actions.request(host.service.settings, "cancel", job_id)
        host.until(lambda: not daemon.runs, "the kill")
        assert daemon.acted == [point]
    with host.daemon():
        assert host.wait(job_id).state == JobState.CANCELLED
    assert host.service.moves(job_id).count("cancelled") == 1
    assert host.service.held() == {}
    host.check_processes(job_id)


@pytest.mark.parametrize("point", SUPERVISOR)
def test_a_job_completes_after_a_kill_of_its_supervisor(host: ProcessFixture, point: str) -> None:
    _runs_in_spite_of_a_kill(host, host.job(), point)


@pytest.mark.parametrize("point", RANK)
@pytest.mark.thorough
def test_a_job_completes_after_a_kill_of_its_rank(host: ProcessFixture, point: str) -> None:
    _runs_in_spite_of_a_kill(host, host.job(script=SCRIPT), point)


@pytest.mark.thorough
@pytest.mark.parametrize("point", RAISING)
def test_a_job_completes_after_a_kill_of_a_rank_that_reports_its_error(host: ProcessFixture, point: str) -> None:
    _runs_in_spite_of_a_kill(host, host.job(script=RAISES), point)


@pytest.mark.thorough
@pytest.mark.parametrize("point", [*WORKER, *SUPERVISOR, *RANK, *RAISING])
def test_a_job_completes_with_one_delayed_step(host: ProcessFixture, point: str) -> None:
    job_id = host.job(script=RAISES if point in RAISING else SCRIPT if point in RANK else "")
    with host.daemon(f"{point}=delay:0.3") as daemon:
        assert host.wait(job_id).attempt == (2 if point in RAISING else 1)
        assert set(daemon.acted) == {point}
    host.check(job_id)


@pytest.mark.thorough
def test_a_job_completes_with_every_step_delayed(host: ProcessFixture) -> None:
    points = [*WORKER, *SUPERVISOR, *RANK, *RAISING]
    job_id = host.job(script=RAISES)
    with host.daemon(";".join(f"{point}=delay:0.03" for point in points)) as daemon:
        assert host.wait(job_id).attempt == 2
        assert set(daemon.acted) == set(points)
    host.check(job_id)


@pytest.mark.thorough
def test_a_cancel_completes_with_every_step_delayed(host: ProcessFixture) -> None:
    _is_cancelled_in_spite_of_delays(host, STOPPING)


@pytest.mark.thorough
@pytest.mark.parametrize("point", STOPPING)
def test_a_cancel_completes_with_one_delayed_step(host: ProcessFixture, point: str) -> None:
    _is_cancelled_in_spite_of_delays(host, [point])


def _is_cancelled_in_spite_of_delays(host: ProcessFixture, points: list[str]) -> None:
    host.gate.unlink()
    job_id = host.job()
    with host.daemon(";".join(f"{point}=delay:0.2" for point in points)) as daemon:
        host.until(lambda: any(row.launcher for row in host.service.attempts(job_id)), "the job runs")
        actions.request(host.service.settings, "cancel", job_id)
        assert host.wait(job_id).state == JobState.CANCELLED
        assert set(daemon.acted) == set(points)
    host.check_processes(job_id)


def _runs_in_spite_of_a_kill(host: ProcessFixture, job_id: str, point: str) -> None:
    with host.daemon(f"{point}=kill") as daemon:
        job = host.wait(job_id)
        assert daemon.acted == [point]
    host.check(job_id)
    # What was killed after it had said all is not missed.
    assert job.attempt == (1 if point == "record.exit.renamed" else 2)
