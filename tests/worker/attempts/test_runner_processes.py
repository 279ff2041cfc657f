"""A runner with real processes, whose run directory, records, supervisor or ranks misbehave."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
from typing import Any

import pytest

from store.attempts import state as attempts
from store.db.database import Database
from tests.approved import Approved
from tests.processes import kill_attempt
from tests.store.fixture import StoreFixture
from tests.worker.attempt import Attempt, rank_of, wait_for
from tests.worker.attempts.fixture import INVENTORY, RunnerFixture, worker_context
from torchyard.contract.attempts.records import ExitReport, ProcessIdentity
from torchyard.contract.states import EndReason, JobState
from torchyard.host import failpoints
from torchyard.host.recordfiles import write_record
from worker.engines.local import stop_requests
from worker.engines.local.engine import LocalEngine
from worker.engines.local.warm.manager import WarmProcess
from worker.host import process
from worker.sandbox import levels

READY = """
import os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
def ready(): (root / "ready").touch()
def gate():
    while not (root.parents[1] / "gate").exists(): time.sleep(0.01)
"""
EXITS_ON_SIGTERM = (
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
IGNORES_SIGTERM = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nwhile True: time.sleep(1)"
PRINTS_AT_GATE = READY + "ready()\ngate()\nprint('the last line', end='')"
REWRITES_RECORDS = (
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
STOPS_ITSELF = READY + "ready()\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: time.sleep(1)"
DELETES_ALL = READY + "import shutil\nready()\ngate()\nshutil.rmtree(root.parent)"


@dataclass
class ProcessRunnerFixture(RunnerFixture[LocalEngine]):
    """A runner on real processes. The attempt is started before it, as forks of the warm process.

    It is not isolated, so that a job can do what the worker must bear where there is no Landlock.
    """

    warm: WarmProcess | None = None

    @property
    def attempt(self) -> Attempt:
        claim = self.claim
        return Attempt(
            self.run,
            claim.job_id,
            claim.number,
            warm=self.warm,
            launcher="warm",
            claimed_at=self.row.started_at,
            isolation=levels.OFF,
        )

    def start_script(self, script: str) -> None:
        self.attempt.start(script)
        self.start_runner()

    def wait_until_ready(self) -> None:
        wait_for((self.run.job / "ready").exists, "the rank")
        wait_for(lambda: self.row.launcher is not None, "the supervisor is known")

    def force_cancel(self) -> None:
        self.store.cancel(self.claim.job_id, grace=timedelta(0))
        self.runner.instructions.recheck_intents()

    def open_gate(self) -> None:
        """Lets a rank go on that waits at `gate()`."""
        (self.run.root.parent / "gate").touch()


@pytest.fixture
def spec() -> dict[str, Any]:
    """What a test changes of the job."""
    return {}


@pytest.fixture
def fixture(
    tmp_path: Path, database: Database, spec: dict[str, Any], warm_process: WarmProcess
) -> Generator[ProcessRunnerFixture]:
    store = StoreFixture(database)
    claim = store.starting(store.submit(**spec), store.worker())
    engine = LocalEngine(tmp_path / "runs", INVENTORY)
    fixture = ProcessRunnerFixture(store, worker_context(tmp_path, database, engine), engine, claim, warm=warm_process)
    fixture.run.create()
    yield fixture
    assert kill_attempt(claim.job_id, claim.number) == []
    fixture.close()


def test_the_last_output_of_a_rank_is_stored_before_the_end(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(PRINTS_AT_GATE)
    fixture.wait_until_ready()
    wait_for(lambda: fixture.job.state == JobState.RUNNING, "running")
    fixture.open_gate()
    assert fixture.wait_for_end().state == JobState.SUCCEEDED
    assert fixture.lines() == ["the last line"]
    assert fixture.store.held() == {}


def test_a_job_that_rewrites_its_records_still_succeeds(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(REWRITES_RECORDS)
    fixture.wait_until_ready()
    fixture.open_gate()
    assert fixture.wait_for_end().state == JobState.SUCCEEDED
    assert fixture.lines() == ["the last line"]


def test_an_unreadable_exit_report_loses_no_line(fixture: ProcessRunnerFixture, approved: Approved) -> None:
    fixture.start_script(READY + "print('the last line', flush=True)\nready()\nwhile True: time.sleep(1)")
    fixture.wait_until_ready()
    fixture.run.exit.write_text("{")
    process.send(fixture.attempt.supervisor, signal.SIGKILL)
    job = fixture.wait_for_end()
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert (fixture.row.end_reason, fixture.row.detail) == (
        EndReason.WORKER_LOST,
        approved("detail"),
    )
    assert "the last line" in fixture.lines()
    assert fixture.attempt.running_processes() == []


def test_a_job_that_deletes_its_run_directory_ends(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(DELETES_ALL)
    fixture.wait_until_ready()
    fixture.open_gate()
    assert fixture.wait_for_end().state == JobState.QUEUED
    assert fixture.store.held() == {}


@pytest.mark.thorough
def test_a_job_without_its_run_directory_can_be_cancelled(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(EXITS_ON_SIGTERM)
    fixture.wait_until_ready()
    shutil.rmtree(fixture.run.root)
    fixture.request_stop()
    assert fixture.wait_for_end().state == JobState.CANCELLED
    assert fixture.attempt.running_processes() == []


@pytest.fixture
def refused_stop() -> Generator[None]:
    """The worker, which is this process, cannot write a stop request."""
    failpoints.arm({failpoints.VARIABLE: "record.stop.fsync=error:EACCES"})
    yield
    failpoints.arm({})


@pytest.mark.usefixtures("refused_stop")
def test_a_stop_request_that_cannot_be_written_reaches_the_job_as_a_signal(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(EXITS_ON_SIGTERM)
    fixture.wait_until_ready()
    fixture.request_stop()
    assert fixture.wait_for_end().state == JobState.CANCELLED
    assert "saved" in fixture.lines()


@pytest.mark.thorough
@pytest.mark.usefixtures("refused_stop")
def test_a_stop_request_that_cannot_be_written_is_carried_out_by_force_when_it_is_overdue(
    fixture: ProcessRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_requests, "OVERDUE_S", -1.0)
    fixture.attempt.start(IGNORES_SIGTERM, grace=3600)
    fixture.start_runner()
    fixture.wait_until_ready()
    fixture.force_cancel()
    assert fixture.wait_for_end().state == JobState.CANCELLED
    assert fixture.attempt.running_processes() == []


def test_a_supervisor_that_runs_but_carries_out_no_stop_is_killed(
    fixture: ProcessRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_requests, "STUCK_S", -1.0)
    write_record(fixture.run.launch, fixture.attempt.plan(["/bin/true"]))
    with subprocess.Popen(["/bin/sleep", "600"]) as stuck:
        try:
            supervisor = process.identity(stuck.pid)
            assert supervisor is not None
            fixture.store.write(lambda session: attempts.mark_launched(session, fixture.claim, supervisor.to_dict()))
            write_record(fixture.run.supervisor, supervisor)
            fixture.start_runner()
            fixture.force_cancel()
            assert fixture.wait_for_end().state == JobState.CANCELLED
        finally:
            stuck.kill()


@pytest.mark.parametrize("spec", [{"stop_grace": "1h"}])
def test_a_forced_cancel_ends_a_stop_that_is_under_way_and_keeps_the_output(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(READY + "print('a line', flush=True)\n" + IGNORES_SIGTERM.removeprefix(READY))
    fixture.wait_until_ready()
    fixture.request_stop()
    wait_for(lambda: os.path.lexists(fixture.run.stop), "the stop")
    fixture.force_cancel()
    assert fixture.wait_for_end().state == JobState.CANCELLED
    assert fixture.lines() == ["a line"]
    assert fixture.attempt.running_processes() == []


@pytest.mark.thorough
@pytest.mark.usefixtures("refused_stop")
def test_the_processes_of_a_rescued_attempt_end_even_if_no_stop_request_can_be_written(
    fixture: ProcessRunnerFixture,
) -> None:
    fixture.start_script(EXITS_ON_SIGTERM)
    fixture.wait_until_ready()
    fixture.store.expire(fixture.claim)
    assert fixture.store.rescue(fixture.claim)
    fixture.runner.instructions.request_abandon()
    wait_for(lambda: fixture.runner.done, "the runner's end")
    assert fixture.attempt.running_processes() == []


@pytest.mark.parametrize(("earlier", "ends"), [(0, "completed"), (1, "data_error")])
def test_the_run_directory_of_another_attempt_with_the_same_number_is_moved_aside(
    fixture: ProcessRunnerFixture, earlier: int, ends: str
) -> None:
    run = fixture.run
    plan = replace(fixture.attempt.plan(["/bin/true"]), claimed_at=fixture.row.started_at - earlier)
    write_record(run.launch, plan)
    write_record(run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    write_record(run.exit, ExitReport(reason=EndReason.COMPLETED))
    run.log("rank-0", "stdout").write_text("a line\n")
    fixture.start_runner()
    assert fixture.wait_for_end().reason_code == ends  # its code does not exist
    assert fixture.lines() == ["a line"] * (not earlier)
    kept = {path.name: (path / "ctl" / "exit.json").exists() for path in run.root.parent.iterdir()}
    assert kept == ({"1": False, ".stale.1": True} if earlier else {"1": True})


@pytest.mark.thorough
def test_leftover_processes_are_stopped_even_if_their_records_are_unreadable(fixture: ProcessRunnerFixture) -> None:
    fixture.attempt.start(READY + "ready()\nwhile True: time.sleep(1)")
    wait_for((fixture.run.job / "ready").exists, "the rank")
    process.send(fixture.attempt.supervisor, signal.SIGKILL)
    fixture.run.supervisor.write_text("{")
    fixture.engine.kill_others({fixture.key})
    assert fixture.attempt.running_processes()
    fixture.engine.kill_others(set())
    assert fixture.attempt.running_processes() == []


def test_a_stopped_supervisor_is_resumed(fixture: ProcessRunnerFixture) -> None:
    fixture.start_script(EXITS_ON_SIGTERM)
    fixture.wait_until_ready()
    process.send(fixture.attempt.supervisor, signal.SIGSTOP)
    fixture.request_stop()
    assert fixture.wait_for_end().state == JobState.CANCELLED
    assert fixture.row.end_reason == EndReason.CANCELLED
    assert "saved" in fixture.lines()


def test_an_attempt_with_unkillable_processes_keeps_its_devices_and_its_owner_is_told(
    fixture: ProcessRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(target: ProcessIdentity, number: signal.Signals) -> bool:
        if number == signal.SIGKILL:
            raise PermissionError("as for another user's process")
        return send(target, number)

    send = process.send
    fixture.start_script(IGNORES_SIGTERM)
    fixture.wait_until_ready()
    with monkeypatch.context() as patch:
        patch.setattr(process, "send", refuse)
        patch.setattr("worker.engines.local.leftovers.DEADLINE_S", 0.2)
        send(fixture.attempt.supervisor, signal.SIGKILL)
        wait_for(fixture.messages, "the owner is told")
        assert fixture.store.held() != {}
    assert fixture.wait_for_end().state == JobState.QUEUED
    told = fixture.messages()
    assert told and all(
        message.startswith("these processes cannot be killed, and keep the devices") for message in told
    )
    pids = [set(re.findall(r"\d+", message)) for message in told]
    assert all(left < before for before, left in pairwise(pids)), "told again only when fewer are left"
    assert fixture.store.held() == {}


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [{"stop_grace": "1s"}])
def test_a_cancelled_job_with_a_stopped_rank_is_killed_after_its_grace(
    fixture: ProcessRunnerFixture, approved: Approved
) -> None:
    fixture.start_script(STOPS_ITSELF)
    fixture.wait_until_ready()
    rank = rank_of(fixture.run)
    wait_for(lambda: process.is_stopped(rank), "the rank is stopped")
    fixture.request_stop()
    assert fixture.wait_for_end().state == JobState.CANCELLED
    assert fixture.row.detail == approved("detail")
    assert fixture.attempt.running_processes() == []


def test_a_supervisor_of_an_earlier_boot_has_ended(fixture: ProcessRunnerFixture, approved: Approved) -> None:
    write_record(fixture.run.launch, fixture.attempt.plan(["/bin/true"]))
    write_record(fixture.run.supervisor, ProcessIdentity(pid=1, start_time=1, boot_id="another"))
    fixture.start_runner()
    assert fixture.wait_for_end().state == JobState.QUEUED
    assert fixture.row.detail == approved("detail")
    assert fixture.job.restarts == 0


def test_a_process_that_reuses_a_supervisors_pid_is_neither_adopted_nor_killed(
    fixture: ProcessRunnerFixture, approved: Approved
) -> None:
    write_record(fixture.run.launch, fixture.attempt.plan(["/bin/true"]))
    with subprocess.Popen(["/bin/sleep", "600"]) as unrelated:
        try:
            now = process.identity(unrelated.pid)
            assert now is not None
            supervisor = replace(now, start_time=now.start_time - 1)
            fixture.store.write(lambda session: attempts.mark_launched(session, fixture.claim, supervisor.to_dict()))
            write_record(fixture.run.supervisor, supervisor)
            fixture.start_runner()
            assert fixture.wait_for_end().state == JobState.QUEUED
            assert fixture.row.detail == approved("detail")
            assert process.is_alive(now)
        finally:
            unrelated.kill()
