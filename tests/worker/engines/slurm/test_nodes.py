"""An attempt over two nodes, with real processes: what its nodes and its coordinator do when one of them fails."""

from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal

import pytest

from tests.approved import Approved
from tests.worker.attempt import wait_for
from tests.worker.engines.slurm.engines import SlurmEngineFixture
from torchyard.contract.attempts.records import ExitReport, ProcessIdentity
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record
from worker.engines.base import Ended, Handle, Running
from worker.host import process

READY = "import os, pathlib, sys, time\nrank = int(os.environ['RANK'])\n"
RUN = "run = pathlib.Path(os.environ['TORCHYARD_RUN_DIR'])\n(run / f'up-{rank}').touch()\n"
ALL = "while not all((run / f'up-{other}').exists() for other in range(4)): time.sleep(0.02)\n"
WAITS = READY + RUN + "while True: time.sleep(0.05)\n"
SECRET = "a-secret-value"


@pytest.fixture
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[SlurmEngineFixture]:
    silence_s = 5.0 if "silent" in request.node.name else 25.0
    fixture = SlurmEngineFixture(tmp_path, nodes=2, silence_s=silence_s)
    yield fixture
    fixture.clean_up()


def started(found: SlurmEngineFixture, script: str, **variables: str) -> Handle:
    """Starts four ranks on two nodes, and waits until they are up."""
    plan = found.plan("waits")
    program = plan.cwd / "train.py"
    program.write_text(script)
    secrets = {"TOKEN": SECRET}
    handle = found.engine.start(replace(plan, program=(str(program),), env={**plan.env, **variables}, secrets=secrets))
    run = found.run(handle.key)
    wait_for(lambda: all((run.job / f"up-{rank}").exists() for rank in range(4)), "four ranks")
    return handle


def report_of(found: SlurmEngineFixture, handle: Handle) -> ExitReport:
    wait_for(lambda: isinstance(found.engine.poll(handle), Ended), "its end")
    seen = found.engine.poll(handle)
    assert isinstance(seen, Ended)
    return seen.report


def node_process(found: SlurmEngineFixture, handle: Handle, node: int) -> int:
    """Returns the pid of the process that keeps in touch with the coordinator."""
    supervisor = read_record(found.run(handle.key).of_node(node).supervisor, ProcessIdentity)
    assert supervisor is not None
    return int(Path(f"/proc/{supervisor.pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def test_the_ranks_of_all_nodes_run_and_complete_and_the_nodes_tell_what_they_have(found: SlurmEngineFixture) -> None:
    handle = started(found, READY + RUN + ALL + "while not (run / 'done').exists(): time.sleep(0.05)\n")
    wait_for(lambda: isinstance(found.engine.poll(handle), Running), "an attempt that runs")
    seen = found.engine.poll(handle)
    assert isinstance(seen, Running)
    assert (seen.ranks, seen.world_size) == (4, 4)
    assert [node.host for node in seen.nodes] == ["n1", "n2"]
    assert len({device.uuid for node in seen.nodes for device in node.devices}) == 4
    (found.run(handle.key).job / "done").touch()
    assert report_of(found, handle) == ExitReport(reason=EndReason.COMPLETED)
    assert found.has_ended(handle)
    _assert_no_file_has_a_secret_or_the_key(found, handle)


def _assert_no_file_has_a_secret_or_the_key(found: SlurmEngineFixture, handle: Handle) -> None:
    """Of the run directory."""
    key = next(
        line.split("SLURM_TORCHYARD_KEY")[1] for line in (found.slurm.folder / "job-1").read_text().splitlines()
    ).split('"')[2]
    assert len(key) == 64
    for file in found.run(handle.key).root.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert SECRET.encode() not in content
        assert key.encode() not in content
        assert bytes.fromhex(key) not in content


@pytest.mark.thorough
def test_a_rank_that_fails_ends_all_and_its_node_is_named(found: SlurmEngineFixture, approved: Approved) -> None:
    handle = started(
        found, READY + RUN + ALL + "if rank == 3: raise ValueError('no luck')\nwhile True: time.sleep(0.05)\n"
    )
    report = report_of(found, handle)
    assert (report.reason, report.rank) == (EndReason.USER_ERROR, 3)
    assert report.message == approved("message")
    assert "no luck" in (report.traceback or "")
    assert found.has_ended(handle)


@pytest.mark.thorough
def test_a_stop_reaches_all_nodes(found: SlurmEngineFixture) -> None:
    handle = started(found, "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + WAITS)
    found.engine.request_stop(handle, EndReason.PAUSED, timedelta(seconds=20))
    assert report_of(found, handle).reason is EndReason.PAUSED
    assert found.has_ended(handle)


@pytest.mark.thorough
def test_an_attempt_pauses_by_itself_on_all_nodes(found: SlurmEngineFixture) -> None:
    counts = (
        "import torchyard\nit, step = torchyard.init(), 0\nwhile not it.should_stop():\n"
        "    step += 1\n    it.log({'loss': 1 / step}, step=step)\n    time.sleep(0.02)\n"
    )
    handle = started(found, READY + RUN + ALL + counts, TORCHYARD_PAUSE_AT="steps:5")
    report = report_of(found, handle)
    assert (report.reason, report.message) == (EndReason.PAUSED, "paused")
    assert found.has_ended(handle)


@pytest.mark.thorough
def test_a_cancelled_job_is_killed_on_all_nodes_after_its_grace(found: SlurmEngineFixture) -> None:
    handle = started(found, "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS)
    found.engine.request_stop(handle, EndReason.CANCELLED, timedelta(seconds=20))
    found.engine.request_stop(handle, EndReason.CANCELLED, timedelta())
    report = report_of(found, handle)
    assert (report.reason, "killed after a grace of" in report.message) == (EndReason.CANCELLED, True)
    assert found.has_ended(handle)


@pytest.mark.thorough
def test_a_node_whose_process_was_killed_is_lost_and_ends_its_ranks(found: SlurmEngineFixture) -> None:
    handle = started(found, WAITS)
    os.kill(node_process(found, handle, 1), signal.SIGKILL)
    report = report_of(found, handle)
    assert (report.reason, "was lost" in report.message) == (EndReason.WORKER_LOST, True)
    wait_for(lambda: found.has_ended(handle), "the end of all processes")


@pytest.mark.thorough
def test_a_supervisor_that_was_killed_leaves_nothing_and_its_node_says_so(found: SlurmEngineFixture) -> None:
    handle = started(found, WAITS)
    supervisor = read_record(found.run(handle.key).of_node(1).supervisor, ProcessIdentity)
    assert supervisor is not None
    process.send(supervisor, signal.SIGKILL)
    report = report_of(found, handle)
    assert report.reason is EndReason.WORKER_LOST
    assert report.message.startswith("node 1 (n2): the supervisor ended with code -9")
    assert found.has_ended(handle)


@pytest.mark.thorough  # a real Slurm shows it, too
def test_nodes_whose_coordinator_is_silent_end_their_ranks_themselves(found: SlurmEngineFixture) -> None:
    handle = started(found, WAITS)
    coordinator = found.slurm.jobs()[0].batch
    os.kill(coordinator, signal.SIGSTOP)
    wait_for(lambda: found.has_ended(handle), "the end of all ranks")
    os.kill(coordinator, signal.SIGCONT)
    assert report_of(found, handle).reason is EndReason.WORKER_LOST


@pytest.mark.thorough  # a real Slurm shows it, too
def test_a_node_that_is_silent_is_lost_and_the_other_one_is_stopped(found: SlurmEngineFixture) -> None:
    handle = started(found, WAITS)
    silent = node_process(found, handle, 1)
    os.kill(silent, signal.SIGSTOP)
    run = found.run(handle.key)
    wait_for(run.of_node(0).exit.exists, "the end of the other node")
    os.kill(silent, signal.SIGCONT)
    assert report_of(found, handle).reason is EndReason.WORKER_LOST
    wait_for(lambda: found.has_ended(handle), "the end of all processes")


@pytest.mark.thorough
def test_what_slurm_preempts_saves_and_goes_back_to_the_queue(found: SlurmEngineFixture) -> None:
    saves = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: ((run / f'saved-{rank}').touch(), sys.exit(0)))\n"
    )
    handle = started(found, READY + "run = pathlib.Path(os.environ['TORCHYARD_RUN_DIR'])\n" + saves + WAITS)
    os.kill(found.slurm.jobs()[0].batch, signal.SIGTERM)
    assert report_of(found, handle).reason is EndReason.PREEMPTED
    assert all((found.run(handle.key).job / f"saved-{rank}").exists() for rank in range(4))


@pytest.mark.thorough  # a real Slurm shows it, too
def test_a_coordinator_that_cannot_show_that_it_lives_ends_the_attempt(found: SlurmEngineFixture) -> None:
    handle = started(found, WAITS)
    heartbeat = found.run(handle.key).ctl / "heartbeat"
    heartbeat.unlink()
    heartbeat.symlink_to("/nowhere/at/all")
    report = report_of(found, handle)
    assert (report.reason, found.has_ended(handle)) == (EndReason.WORKER_LOST, True)
