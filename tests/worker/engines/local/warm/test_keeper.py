"""A warm process that is killed, stopped, changed or unfit hurts no job, and one that can be started again is."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from tests.warm import START_S
from tests.worker.attempt import Attempt, wait_for
from tests.worker.engines.local.warm.light import Light
from tests.worker.engines.rigs import LocalRig
from torchyard.contract.errors import ConfigError
from torchyard.contract.job import EndReason
from torchyard.contract.records import ProcessIdentity
from worker.engines.base import Ended, Engine, Handle, Running
from worker.engines.local import orphans, process
from worker.engines.local.warm.keeper import NotWarm, WarmProcess

LONG = timedelta(minutes=5)
ROOT = Path(__file__).parents[5]
OWNER = """
from pathlib import Path
import signal, sys
from tests.worker.engines.local.warm.light import Light
from torchyard.contract.rundir import RunDir
from worker.engines.local import orphans, supervisors
light = Light()
orphans.start = light.start
warm = light.open()
supervisors.start(RunDir(Path(sys.argv[1])), warm=warm)
print(light.started[0].to_json(), flush=True)
signal.pause()
"""
"""A worker with a warm process and an attempt that the test has written."""
DIES_HAVING_FORKED = """
me, child = os.getpid(), fork.child
def fork_and_die(be, **options):
    pid = child(be, **options)
    if os.getpid() == me:
        os.kill(me, signal.SIGKILL)
    return pid
fork.child = fork_and_die
"""
UNFIT = {
    "a module that is not there": "preload.MODULES = ('no_such_module',)",
    "a second thread": "preload.MODULES = ()\nthreading.Thread(target=signal.pause, daemon=True).start()",
}


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> Light:
    """Each warm process of the test is a light one."""
    found = Light()
    monkeypatch.setattr(orphans, "start", found.start)
    return found


@pytest.fixture
def warm(light: Light) -> Generator[WarmProcess]:
    opened = light.open()
    yield opened
    opened.close()
    assert not any(process.is_alive(item) for item in light.started)


@pytest.fixture
def rig(tmp_path: Path, warm: WarmProcess) -> Generator[LocalRig]:
    created = LocalRig(tmp_path, warm=warm)
    yield created
    created.clean_up()


def _of_other_code(env: Mapping[str, str]) -> str:
    return f"other code, with {len(env)} variables"


def _ended(engine: Engine, handle: Handle) -> EndReason:
    wait_for(lambda: isinstance(engine.poll(handle), Ended), "its end")
    seen = engine.poll(handle)
    assert isinstance(seen, Ended)
    return seen.report.reason


def test_one_that_is_killed_is_started_again_and_its_jobs_go_on(light: Light, warm: WarmProcess, rig: LocalRig) -> None:
    handles = [rig.engine.start(rig.plan("waits")) for _ in range(2)]
    for handle in handles:
        rig.come_up(handle)
    process.send(light.started[0], signal.SIGKILL)
    wait_for(lambda: warm.look().mode == "cold", "its end is seen")
    first, second = handles
    rig.engine.request_stop(first, EndReason.PAUSED, LONG)
    assert _ended(rig.engine, first) is EndReason.PAUSED
    assert rig.engine.poll(second) == Running(2, 2)
    wait_for(lambda: warm.look().mode == "warm", "the next warm process")
    third = rig.engine.start(rig.plan("completes"))
    assert _ended(rig.engine, third) is EndReason.COMPLETED
    assert (warm.look().forks, len(light.started)) == (3, 2)
    rig.engine.request_stop(second, EndReason.CANCELLED, LONG)
    assert _ended(rig.engine, second) is EndReason.CANCELLED


def test_one_that_is_stopped_while_it_is_asked_starts_nothing_and_the_job_starts_cold(
    light: Light, rig: LocalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.engines.local.warm.keeper._FORK_S", 0.2)
    os.kill(light.started[0].pid, signal.SIGSTOP)
    handle = rig.engine.start(replace(rig.plan("waits"), launcher="auto"))
    assert handle.note == "starts by torchrun, which takes seconds: the warm process ended while it was asked"
    assert not process.is_alive(light.started[0])
    rig.come_up(handle)
    assert len(process.find(handle.key.job_id, 1)) == 4  # the supervisor, the launcher and two ranks
    rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert _ended(rig.engine, handle) is EndReason.PAUSED


def test_one_that_dies_before_it_can_say_that_it_has_started_a_job_has_started_it_once(
    light: Light, tmp_path: Path
) -> None:
    light.change = DIES_HAVING_FORKED
    dying = light.open()
    rig = LocalRig(tmp_path, warm=dying)
    try:
        handle = rig.engine.start(rig.plan("waits"))
        assert handle.note is None
        assert not process.is_alive(light.started[0])
        rig.come_up(handle)
        assert len(process.find(handle.key.job_id, 1)) == 3  # the supervisor and its ranks
        rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
        assert _ended(rig.engine, handle) is EndReason.PAUSED
    finally:
        dying.close()
        rig.clean_up()


def test_its_jobs_go_on_when_it_is_closed(light: Light, warm: WarmProcess, rig: LocalRig) -> None:
    handle = rig.engine.start(rig.plan("waits"))
    rig.come_up(handle)
    warm.close()
    assert not process.is_alive(light.started[0])
    assert rig.engine.poll(handle) == Running(2, 2)
    rig.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert _ended(rig.engine, handle) is EndReason.PAUSED
    with pytest.raises(ConfigError, match="launcher: warm is not possible: the warm process"):
        rig.engine.start(rig.plan("waits"))


def test_it_ends_when_its_worker_is_killed_and_its_jobs_go_on(attempt: Attempt) -> None:
    attempt.launcher = "warm"
    attempt.write("import signal\nopen('ready', 'w').close()\nsignal.pause()")
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{OWNER}"]
    with subprocess.Popen([*command, str(attempt.run.root)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        warm = ProcessIdentity.from_json(owner.stdout.readline())
        attempt.wait_for_file("ready")
        assert process.is_alive(warm)
        owner.kill()
    wait_for(lambda: not process.is_alive(warm), "its end")
    assert process.is_alive(attempt.supervisor)
    attempt.stop(grace=0)
    assert attempt.report().reason is EndReason.CANCELLED


def test_one_whose_code_has_changed_is_replaced_at_the_next_start(
    light: Light, warm: WarmProcess, rig: LocalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rig.engine.start(rig.plan("waits"))
    rig.come_up(before)
    monkeypatch.setattr("worker.engines.local.warm.keeper.fingerprint", _of_other_code)
    handle = rig.engine.start(rig.plan("completes"))
    assert _ended(rig.engine, handle) is EndReason.COMPLETED
    assert [process.is_alive(item) for item in light.started] == [False, True]
    assert rig.engine.poll(before) == Running(2, 2)
    assert warm.look().mode == "warm"


def test_one_whose_code_changes_while_it_begins_is_replaced_at_once(
    light: Light, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = WarmProcess({"PATH": os.environ["PATH"]})
    warm.open()
    try:
        wait_for(lambda: light.started, "the first one")
        monkeypatch.setattr("worker.engines.local.warm.keeper.fingerprint", _of_other_code)
        assert "torch" in warm.modules(wait_s=START_S)
        assert [process.is_alive(item) for item in light.started] == [False, True]
    finally:
        warm.close()


@pytest.mark.parametrize("change", UNFIT.values(), ids=UNFIT)
def test_jobs_start_cold_with_a_word_where_no_warm_process_can_be_ready(
    light: Light, tmp_path: Path, change: str
) -> None:
    light.change = change
    unfit = WarmProcess({"PATH": os.environ["PATH"]})
    unfit.open()
    why = "the warm process ended before it was ready: the worker's log says why"
    rig = LocalRig(tmp_path, warm=unfit)
    try:
        with pytest.raises(NotWarm, match=why):
            unfit.modules(wait_s=60)
        assert (unfit.look().mode, unfit.look().why) == ("cold", why)
        plan = rig.plan("completes")
        with pytest.raises(ConfigError, match=f"launcher: warm is not possible: {why}. With auto, the job starts"):
            rig.engine.start(plan)
        assert rig.engine.find(plan.key, world_size=2, claimed_at=plan.claimed_at) is None
        handle = rig.engine.start(replace(plan, launcher="auto"))
        assert handle.note == f"starts by torchrun, which takes seconds: {why}"
        assert _ended(rig.engine, handle) is EndReason.COMPLETED
        wanted = rig.engine.start(replace(rig.plan("completes"), launcher="torchrun"))
        assert wanted.note is None
        assert _ended(rig.engine, wanted) is EndReason.COMPLETED
    finally:
        unfit.close()
        rig.clean_up()


def test_an_engine_without_one_starts_cold_and_refuses_a_job_that_must_be_warm(tmp_path: Path) -> None:
    rig = LocalRig(tmp_path)
    try:
        with pytest.raises(ConfigError, match="launcher: warm is not possible: this worker keeps no warm process"):
            rig.engine.start(replace(rig.plan("completes"), launcher="warm"))
        handle = rig.engine.start(replace(rig.plan("completes"), launcher="auto"))
        assert handle.note is None
        assert _ended(rig.engine, handle) is EndReason.COMPLETED
    finally:
        rig.clean_up()
