"""The supervisor leaves no process of its attempt."""

import os
import signal
import subprocess
import sys

import pytest

from tests.approved import Approved
from tests.processes import kill_attempt
from tests.worker.attempt import STAND_IN, WARM_LAUNCH, Attempt, isolation, wait_for
from tests.worker.programs import (
    HAS_DAEMONS,
    HAS_HIDDEN_GRANDCHILD,
    READY,
    RUNS_FOREVER,
    SAVES_ON_SIGTERM,
    SUPERVISOR_THAT_CANNOT_KILL,
    USES_DATA_LOADER,
    descendant,
    launcher_process,
    rank_process,
    unrelated_process,
)
from torchyard.contract.attempts.events import Message, parse_line
from torchyard.contract.states import EndReason
from torchyard.host import failpoints
from torchyard.host.recordfiles import write_record
from worker.host import process


def test_the_owner_is_told_of_unkillable_processes(attempt: Attempt) -> None:
    argv = [*STAND_IN, "1", str(attempt.script(RUNS_FOREVER))]
    write_record(attempt.run.launch, attempt.plan(argv))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SUPERVISOR_THAT_CANNOT_KILL, str(attempt.run.root)]
    ) as supervisor:
        try:
            attempt.wait_for_file("ready-0")
            rank = rank_process(attempt, 0)
            attempt.run.events.write_text('{"half a line')
            attempt.stop(grace=0)
            wait_for(lambda: attempt.run.events.read_text().endswith("}\n"), "the message")
            assert not attempt.run.exit.exists()
        finally:
            (attempt.run.root / "gate").touch()
        assert supervisor.wait() == 0
    half_line, line = attempt.run.events.read_text().splitlines()
    message = parse_line(line)
    assert isinstance(message, Message)
    assert (half_line, message.level) == ('{"half a line', "warning")
    assert message.text.startswith("these processes cannot be killed, and keep the devices of the attempt")
    assert str(rank.pid) in message.text
    assert attempt.report().reason is EndReason.CANCELLED


@WARM_LAUNCH
def test_a_stop_also_ends_a_grandchild_in_its_own_session(attempt: Attempt, approved: Approved) -> None:
    attempt.start(HAS_HIDDEN_GRANDCHILD, world_size=2)
    attempt.wait_for_file("ready-0")
    grandchild = descendant(attempt)
    attempt.stop(grace=1)
    report = attempt.report()
    assert report.reason is EndReason.CANCELLED
    assert report.message == approved("message")
    assert not process.is_alive(grandchild)
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_grandchild_left_behind_by_a_successful_rank_is_ended(attempt: Attempt) -> None:
    leaves = 'while not (root / "leave").exists(): time.sleep(0.01)\n'
    attempt.start(HAS_HIDDEN_GRANDCHILD.rpartition("while True")[0] + leaves)
    grandchild = descendant(attempt)
    (attempt.run.job / "leave").touch()
    assert attempt.report().reason is EndReason.COMPLETED
    assert not process.is_alive(grandchild)


@pytest.mark.parametrize("attempt", ["agent"], indirect=True)
def test_a_killed_launcher_is_reported_and_leaves_no_process(attempt: Attempt, approved: Approved) -> None:
    attempt.start(HAS_HIDDEN_GRANDCHILD, world_size=2)
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    grandchild = descendant(attempt)
    process.send(launcher_process(attempt), signal.SIGKILL)
    report = attempt.report()
    assert report.reason is EndReason.WORKER_LOST
    assert report.message == approved.of_row("message")
    assert not process.is_alive(grandchild)
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_the_processes_of_a_killed_supervisor_are_found_and_killed(attempt: Attempt) -> None:
    attempt.start(
        READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: time.sleep(1)", world_size=2
    )
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    supervisor = attempt.supervisor
    has_init = isolation().own_pids and attempt.launcher == "torchrun"
    others = 4 + has_init  # ranks, agent, door, perhaps the first process
    wait_for(lambda: len(attempt.running_processes()) == 1 + others, "the door, which is forked last")
    assert supervisor in attempt.running_processes()
    process.send(supervisor, signal.SIGKILL)
    wait_for(lambda: not process.is_alive(supervisor), "the supervisor's end")
    assert len(attempt.running_processes()) in {others - 1, others}  # the door ends once its supervisor is gone
    assert kill_attempt(attempt.job_id, attempt.number) == []
    assert attempt.running_processes() == []
    assert not attempt.run.exit.exists()


@WARM_LAUNCH
def test_daemons_of_a_rank_end_with_it(attempt: Attempt) -> None:
    attempt.start(HAS_DAEMONS)
    attempt.wait_for_file("ready-0")
    daemons = [descendant(attempt, name) for name in ("named", "nameless")]
    process.send(rank_process(attempt, 0), signal.SIGKILL)
    assert attempt.report().reason in {EndReason.KILLED, EndReason.USER_ERROR}
    assert not any(process.is_alive(daemon) for daemon in daemons)


@WARM_LAUNCH
def test_the_data_loader_workers_of_a_killed_rank_end_with_it(attempt: Attempt) -> None:
    attempt.start(USES_DATA_LOADER)
    workers = [descendant(attempt, name) for name in ("loader-0", "loader-1")]
    process.send(rank_process(attempt, 0), signal.SIGKILL)
    assert attempt.report().reason in {EndReason.KILLED, EndReason.USER_ERROR}
    assert not any(process.is_alive(worker) for worker in workers)
    assert attempt.running_processes() == []


@WARM_LAUNCH
def test_a_daemon_of_a_killed_supervisor_and_rank_is_found_by_its_environment(attempt: Attempt) -> None:
    attempt.start(HAS_DAEMONS)
    attempt.wait_for_file("ready-0")
    named, nameless = (descendant(attempt, name) for name in ("named", "nameless"))
    try:
        for victim in (attempt.supervisor, rank_process(attempt, 0)):
            process.send(victim, signal.SIGKILL)
        # With the first process of a pid namespace all others in it end, soon.
        assert isolation().own_pids or named in attempt.running_processes()
        assert kill_attempt(attempt.job_id, attempt.number) == []
        # A process that is just ending has no environment any more, by which it could be found.
        wait_for(lambda: not process.is_alive(named), "the end of the daemon")
    finally:
        process.kill_all(lambda: [nameless] if process.is_alive(nameless) else [], timeout=None)


@pytest.mark.parametrize("attempt", ["agent"], indirect=True)
def test_a_rank_record_that_names_an_unrelated_process_is_ignored(attempt: Attempt) -> None:
    with unrelated_process() as unrelated:
        write_record(attempt.run.ranks / "1.json", unrelated)
        os.mkfifo(attempt.run.ranks / "2.json")
        attempt.world_size = 3
        argv = [*STAND_IN, "1"]
        attempt.start_plan(attempt.plan([*argv, str(attempt.script(RUNS_FOREVER))]))
        attempt.wait_for_file("ready-0")
        attempt.stop(grace=5)
        assert attempt.report().reason is EndReason.CANCELLED
        assert process.is_alive(unrelated)


def test_an_unwritable_run_directory_leaves_no_process(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "record.exit.fsync=error:EACCES;record.stop.fsync=error:EACCES")
    attempt.start(SAVES_ON_SIGTERM)
    attempt.wait_for_file("ready-0")
    supervisor = attempt.supervisor
    process.send(supervisor, signal.SIGTERM)
    wait_for(lambda: not process.is_alive(supervisor), "the supervisor's end")
    assert attempt.running_processes() == []
    assert "cannot be written" in attempt.run.supervisor_log.read_text()
