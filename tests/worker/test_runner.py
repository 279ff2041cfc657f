"""One attempt over a real store and real processes, through what can go wrong in its run directory and its store."""

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
import shutil
import signal
import subprocess
import threading
from typing import Any

import pytest

from store.blobs import Blobs
from store.db.database import Database
from store.db.tables import Attempt as AttemptRow
from store.db.tables import Job
from store.rows import attempts, logs
from store.rows.attempts import Claim
from tests.store.fixture import StoreFixture, store_on
from tests.worker.attempt import Attempt, wait_for
from torchyard.contract import failpoints
from torchyard.contract.job import EndReason, JobState
from torchyard.contract.recordfiles import read_record, write_record
from torchyard.contract.records import ExitReport, ProcessIdentity
from torchyard.contract.rundir import RunDir
from worker.attempts.effects import Host
from worker.attempts.runner import Runner
from worker.devices.health import Health
from worker.devices.inventory import Device, Inventory
from worker.engines.base import AttemptKey
from worker.engines.local import process
from worker.engines.local.engine import LocalEngine

READY = """
import os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
def ready(): (root / "ready").touch()
def gate():
    while not (root.parents[1] / "gate").exists(): time.sleep(0.01)
"""
LEAVES_ON_TERM = (
    READY
    + """
def leave(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
ready()
while True: time.sleep(0.05)
"""
)
DEAF = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nwhile True: time.sleep(1)"
WAITS_AND_SPEAKS = READY + "ready()\ngate()\nprint('the last line', end='')"
SAVES = (
    READY
    + """
import torchyard
run = torchyard.init()
run.save_checkpoint({"step": 3}, step=3, metrics={})
print("saved")
"""
)
VANDAL = (
    READY
    + """
import shutil
ready()
gate()
for name in ("supervisor.json", "exit.json"):
    (root.parent / "ctl" / name).write_text("{")
print("the last line", flush=True)
"""
)
STOPPED = READY + "ready()\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: time.sleep(1)"
DELETES_ALL = READY + "import shutil\nready()\ngate()\nshutil.rmtree(root.parent)"


@dataclass
class Bench:
    """A claimed job whose attempt is about to be started under the stand-in for torchrun."""

    yard: StoreFixture
    host: Host
    claim: Claim
    attempt: Attempt
    runners: list[Runner] = field(default_factory=list[Runner])

    @property
    def runner(self) -> Runner:
        return self.runners[-1]

    def start(self, script: str) -> None:
        self.attempt.start(script)
        self.run()

    def run(self, *, preempted: bool = False) -> None:
        self.runners.append(Runner(self.host, self.claim))
        if preempted:
            self.runner.orders.give_preempt()
        self.runner.start()

    def ready(self) -> None:
        wait_for((self.attempt.run.job / "ready").exists, "the rank")
        wait_for(lambda: self.row.launcher is not None, "the supervisor is known")

    def open_gate(self) -> None:
        (self.attempt.run.root.parent / "gate").touch()

    def ask(self, stop: str = "cancel") -> None:
        """The owner asks, and the bell rings."""
        getattr(self.yard, stop)(self.claim.job_id)
        self.runner.orders.look()

    def ended(self) -> Job:
        wait_for(lambda: self.runner.done, "the runner's end")
        return self.job

    @property
    def job(self) -> Job:
        return self.yard.job(self.claim.job_id)

    @property
    def row(self) -> AttemptRow:
        return self.yard.attempt(self.claim)

    def lines(self) -> list[str]:
        return [line.text for line in self.yard.read(lambda s: logs.after(s, self.claim.job_id, line=0, limit=1000))]

    def messages(self) -> list[str]:
        return [event.data["text"] for event in self.yard.events(self.claim.job_id) if event.type == "message"]


@pytest.fixture
def spec() -> dict[str, Any]:
    """What a test changes of the job."""
    return {}


@pytest.fixture
def bench(tmp_path: Path, database: Database, spec: dict[str, Any]) -> Generator[Bench]:
    yard = StoreFixture(database)
    job_id = yard.submit(**spec)
    claim = yard.starting(job_id, yard.worker())
    runs = tmp_path / "runs"
    engine = LocalEngine(runs, Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),)))
    host = Host(store_on(database, blobs=Blobs(tmp_path / "blobs")), engine, runs, (), Health(), threading.Event())
    run = RunDir(host.runs / job_id / "1")
    run.create()
    bench = Bench(yard, host, claim, Attempt(run, job_id, 1))
    yield bench
    assert process.kill_attempt(job_id, 1) == []
    for runner in bench.runners:
        runner.orders.give_detach()
        runner.join(30)


def test_the_last_words_are_stored_before_the_end(bench: Bench) -> None:
    bench.start(WAITS_AND_SPEAKS)
    bench.ready()
    wait_for(lambda: bench.job.state == JobState.RUNNING, "running")
    bench.open_gate()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["the last line"]
    assert bench.yard.held() == {}


def test_a_job_that_rewrites_its_records_ends_as_what_it_was(bench: Bench) -> None:
    bench.start(VANDAL)
    bench.ready()
    bench.open_gate()
    assert bench.ended().state == JobState.SUCCEEDED
    assert bench.lines() == ["the last line"]


def test_an_exit_report_that_cannot_be_read_loses_no_line(bench: Bench) -> None:
    bench.start(READY + "print('the last line', flush=True)\nready()\nwhile True: time.sleep(1)")
    bench.ready()
    bench.attempt.run.exit.write_text("{")
    process.send(bench.attempt.supervisor, signal.SIGKILL)
    job = bench.ended()
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert (bench.row.end_reason, bench.row.detail) == (EndReason.WORKER_LOST, "the attempt's supervisor was killed")
    assert "the last line" in bench.lines()
    assert bench.attempt.left() == []


def test_a_job_that_deletes_its_run_directory_ends(bench: Bench) -> None:
    bench.start(DELETES_ALL)
    bench.ready()
    bench.open_gate()
    assert bench.ended().state == JobState.QUEUED
    assert bench.yard.held() == {}


def test_a_job_without_its_run_directory_can_be_cancelled(bench: Bench) -> None:
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    shutil.rmtree(bench.attempt.run.root)
    bench.ask()
    assert bench.ended().state == JobState.CANCELLED
    assert bench.attempt.left() == []


@pytest.fixture
def refused_stop() -> Generator[None]:
    """The worker, which is this process, cannot write one."""
    failpoints.arm({failpoints.VARIABLE: "record.stop.fsync=error:EACCES"})
    yield
    failpoints.arm({})


@pytest.mark.usefixtures("refused_stop")
def test_a_stop_that_cannot_be_written_reaches_the_job_as_a_signal(bench: Bench) -> None:
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    bench.ask()
    assert bench.ended().state == JobState.CANCELLED
    assert "saved" in bench.lines()


@pytest.mark.usefixtures("refused_stop")
def test_a_lost_attempts_processes_end_even_if_no_stop_can_be_written(bench: Bench) -> None:
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    bench.yard.expire(bench.claim)
    assert bench.yard.rescue(bench.claim)
    bench.runner.orders.give_abandon()
    wait_for(lambda: bench.runner.done, "the runner's end")
    assert bench.attempt.left() == []


@pytest.mark.parametrize(("earlier", "ends"), [(0, "completed"), (1, "data_error")])
def test_what_another_attempt_with_its_number_left_is_not_taken_for_its_own(
    bench: Bench, earlier: int, ends: str
) -> None:
    run = bench.attempt.run
    plan = replace(bench.attempt.plan(["/bin/true"]), claimed_at=bench.row.started_at - earlier)
    write_record(run.launch, plan)
    write_record(run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    write_record(run.exit, ExitReport(reason=EndReason.COMPLETED))
    run.log("rank-0", "stdout").write_text("its words\n")
    bench.run()
    assert bench.ended().reason_code == ends  # there is no code to run
    assert bench.lines() == ["its words"] * (not earlier)
    kept = {path.name: (path / "ctl" / "exit.json").exists() for path in run.root.parent.iterdir()}
    assert kept == ({"1": False, ".stale.1": True} if earlier else {"1": True})


def test_strays_are_stopped_whatever_their_records_say(bench: Bench) -> None:
    bench.attempt.start(READY + "ready()\nwhile True: time.sleep(1)")
    wait_for((bench.attempt.run.job / "ready").exists, "the rank")
    process.send(bench.attempt.supervisor, signal.SIGKILL)
    bench.attempt.run.supervisor.write_text("{")
    bench.host.engine.kill_others({AttemptKey(bench.claim.job_id, 1)})
    assert bench.attempt.left()
    bench.host.engine.kill_others(set())
    assert bench.attempt.left() == []


def test_a_supervisor_that_somebody_stopped_goes_on(bench: Bench) -> None:
    bench.start(LEAVES_ON_TERM)
    bench.ready()
    process.send(bench.attempt.supervisor, signal.SIGSTOP)
    bench.ask()
    assert bench.ended().state == JobState.CANCELLED
    assert bench.row.end_reason == EndReason.CANCELLED
    assert "saved" in bench.lines()


def test_an_attempt_whose_processes_cannot_be_killed_keeps_its_devices_and_its_owner_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(target: ProcessIdentity, number: signal.Signals) -> bool:
        if number == signal.SIGKILL:
            raise PermissionError("as for another user's process")
        return send(target, number)

    send = process.send
    bench.start(DEAF)
    bench.ready()
    with monkeypatch.context() as patch:
        patch.setattr(process, "send", refused)
        patch.setattr("worker.engines.local.strays._DEADLINE_S", 0.2)
        send(bench.attempt.supervisor, signal.SIGKILL)
        wait_for(bench.messages, "the owner is told")
        assert bench.yard.held() != {}
    assert bench.ended().state == JobState.QUEUED
    (told,) = bench.messages()
    assert told.startswith("these processes cannot be killed, and keep the devices")
    assert bench.yard.held() == {}


@pytest.mark.parametrize("spec", [{"stop_grace": "1s"}])
def test_a_cancelled_job_whose_rank_is_stopped_ends_with_its_grace(bench: Bench) -> None:
    bench.start(STOPPED)
    bench.ready()
    rank = read_record(bench.attempt.run.ranks / "0.json", ProcessIdentity)
    assert rank is not None
    wait_for(lambda: process.is_stopped(rank), "the rank is stopped")
    bench.ask()
    assert bench.ended().state == JobState.CANCELLED
    assert bench.row.detail == "cancelled by its owner; killed after a grace of 1s"
    assert bench.attempt.left() == []


def test_a_supervisor_of_another_boot_is_gone(bench: Bench) -> None:
    write_record(bench.attempt.run.launch, bench.attempt.plan(["/bin/true"]))
    write_record(bench.attempt.run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    bench.run()
    assert bench.ended().state == JobState.QUEUED
    assert bench.row.detail == "the host was restarted"
    assert bench.job.restarts == 0


def test_a_process_that_has_a_supervisors_pid_is_neither_adopted_nor_killed(bench: Bench) -> None:
    write_record(bench.attempt.run.launch, bench.attempt.plan(["/bin/true"]))
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        try:
            now = process.identity(stranger.pid)
            assert now is not None
            supervisor = replace(now, start_time=now.start_time - 1)
            bench.yard.write(lambda session: attempts.mark_launched(session, bench.claim, supervisor.to_dict()))
            write_record(bench.attempt.run.supervisor, supervisor)
            bench.run()
            assert bench.ended().state == JobState.QUEUED
            assert bench.row.detail == "the attempt's supervisor was killed"
            assert process.is_alive(now)
        finally:
            stranger.kill()
