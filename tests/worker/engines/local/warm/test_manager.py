"""A warm process that is killed, stopped, outdated or unusable harms no job, and is started again if possible."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import timedelta
import os
from pathlib import Path
import signal
import subprocess
import sys
from typing import Literal

import pytest

from tests.approved import Approved
from tests.warm import START_S
from tests.worker.attempt import Attempt, isolation, wait_for
from tests.worker.engines.fixtures import LocalEngineFixture
from tests.worker.engines.local.warm.light_process import LightWarmProcess
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.errors import ConfigError
from torchyard.contract.states import EndReason
from worker.engines.base import AttemptPlan, Ended, Engine, Handle, Running
from worker.engines.local.warm.manager import WarmProcess, WarmProcessUnavailable
from worker.host import orphans, process

LONG = timedelta(minutes=5)
ROOT = Path(__file__).parents[5]
OWNER = """
from pathlib import Path
import signal, sys
from tests.worker.engines.local.warm.light_process import LightWarmProcess
from torchyard.contract.attempts.rundir import RunDir
from worker.engines.local import supervisors
from worker.host import orphans
light = LightWarmProcess()
orphans.start = light.start
warm = light.open()
supervisors.start(RunDir(Path(sys.argv[1])), warm=warm)
print(light.started[0].to_json(), flush=True)
signal.pause()
"""
"""A worker with a warm process, which starts an attempt that the test has written."""
DIES_AFTER_FORK = """
me, child = os.getpid(), forks.fork
def fork_and_die(run, **options):
    pid = child(run, **options)
    if os.getpid() == me:
        os.kill(me, signal.SIGKILL)
    return pid
forks.fork = fork_and_die
"""
MISSING_MODULE = "preload.MODULES = ('no_such_module',)"
SECOND_THREAD = "preload.MODULES = ()\nthreading.Thread(target=signal.pause, daemon=True).start()"


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> LightWarmProcess:
    """Makes each warm process of the test a light one."""
    found = LightWarmProcess()
    monkeypatch.setattr(orphans, "start", found.start)
    return found


@pytest.fixture
def warm(light: LightWarmProcess) -> Generator[WarmProcess]:
    opened = light.open()
    yield opened
    opened.close()
    assert not any(process.is_alive(item) for item in light.started)


@pytest.fixture
def fixture(tmp_path: Path, warm: WarmProcess) -> Generator[LocalEngineFixture]:
    created = LocalEngineFixture(tmp_path, warm=warm)
    yield created
    created.clean_up()


def _other_fingerprint(env: Mapping[str, str]) -> str:
    return f"other code, with {len(env)} variables"


def _of_one_rank(plan: AttemptPlan, launcher: Literal["auto", "torchrun"]) -> AttemptPlan:
    """Returns a plan whose cold start costs less."""
    return replace(plan, launcher=launcher, devices=plan.devices[:1])


def _ended(engine: Engine, handle: Handle) -> EndReason:
    wait_for(lambda: isinstance(engine.poll(handle), Ended), "its end")
    seen = engine.poll(handle)
    assert isinstance(seen, Ended)
    return seen.report.reason


def test_a_killed_warm_process_is_started_again_and_its_jobs_go_on(
    light: LightWarmProcess, warm: WarmProcess, fixture: LocalEngineFixture
) -> None:
    handles = [fixture.engine.start(fixture.plan("waits")) for _ in range(2)]
    for handle in handles:
        fixture.wait_for_ranks(handle)
    process.send(light.started[0], signal.SIGKILL)
    wait_for(lambda: warm.status().mode == "cold", "its end is noticed")
    first, second = handles
    fixture.engine.request_stop(first, EndReason.PAUSED, LONG)
    assert _ended(fixture.engine, first) is EndReason.PAUSED
    assert fixture.engine.poll(second) == Running(2, 2)
    wait_for(lambda: warm.status().mode == "warm", "the next warm process")
    third = fixture.engine.start(fixture.plan("completes"))
    assert _ended(fixture.engine, third) is EndReason.COMPLETED
    assert (warm.status().forks, len(light.started)) == (3, 2)
    fixture.engine.request_stop(second, EndReason.CANCELLED, LONG)
    assert _ended(fixture.engine, second) is EndReason.CANCELLED


def test_a_job_starts_cold_if_the_warm_process_does_not_answer(
    light: LightWarmProcess, fixture: LocalEngineFixture, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr("worker.engines.local.warm.manager.FORK_S", 0.2)
    os.kill(light.started[0].pid, signal.SIGSTOP)
    handle = fixture.engine.start(replace(fixture.plan("waits"), launcher="auto"))
    assert handle.note == approved("note")
    assert not process.is_alive(light.started[0])
    fixture.wait_for_ranks(handle)
    assert (
        len(process.find(handle.key.job_id, 1)) == 5 + isolation().own_pids
    )  # supervisor, init, door, launcher, ranks
    fixture.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert _ended(fixture.engine, handle) is EndReason.PAUSED


def test_a_job_is_started_once_if_the_warm_process_dies_before_it_replies(
    light: LightWarmProcess, tmp_path: Path
) -> None:
    light.change = DIES_AFTER_FORK
    dying = light.open()
    fixture = LocalEngineFixture(tmp_path, warm=dying)
    try:
        handle = fixture.engine.start(fixture.plan("waits"))
        assert handle.note is None
        assert not process.is_alive(light.started[0])
        fixture.wait_for_ranks(handle)
        assert len(process.find(handle.key.job_id, 1)) == 5  # supervisor, agent, door, ranks
        fixture.engine.request_stop(handle, EndReason.PAUSED, LONG)
        assert _ended(fixture.engine, handle) is EndReason.PAUSED
    finally:
        dying.close()
        fixture.clean_up()


@pytest.mark.thorough
def test_jobs_go_on_when_the_warm_process_is_closed(
    light: LightWarmProcess, warm: WarmProcess, fixture: LocalEngineFixture, approved: Approved
) -> None:
    handle = fixture.engine.start(fixture.plan("waits"))
    fixture.wait_for_ranks(handle)
    warm.close()
    assert not process.is_alive(light.started[0])
    assert fixture.engine.poll(handle) == Running(2, 2)
    fixture.engine.request_stop(handle, EndReason.PAUSED, LONG)
    assert _ended(fixture.engine, handle) is EndReason.PAUSED
    with pytest.raises(ConfigError) as raised:
        fixture.engine.start(fixture.plan("waits"))
    assert str(raised.value) == approved("message")


def test_a_warm_process_ends_with_its_killed_worker_and_its_jobs_go_on(attempt: Attempt) -> None:
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


@pytest.mark.thorough
def test_an_outdated_warm_process_is_replaced_at_the_next_start(
    light: LightWarmProcess, warm: WarmProcess, fixture: LocalEngineFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fixture.engine.start(fixture.plan("waits"))
    fixture.wait_for_ranks(before)
    monkeypatch.setattr("worker.engines.local.warm.manager.LOOK_EVERY_S", 0.0)
    assert warm.loaded_modules(wait_s=0), "the look of the first start is past"
    monkeypatch.setattr("worker.engines.local.warm.manager.fingerprint", _other_fingerprint)
    handle = fixture.engine.start(fixture.plan("completes"))
    assert _ended(fixture.engine, handle) is EndReason.COMPLETED
    assert [process.is_alive(item) for item in light.started] == [False, True]
    assert fixture.engine.poll(before) == Running(2, 2)
    assert warm.status().mode == "warm"


def test_a_warm_process_whose_code_changes_while_it_starts_is_replaced(
    light: LightWarmProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = WarmProcess({"PATH": os.environ["PATH"]})
    warm.open()
    try:
        wait_for(lambda: light.started, "the first one")
        monkeypatch.setattr("worker.engines.local.warm.manager.fingerprint", _other_fingerprint)
        assert "runpy" in warm.loaded_modules(wait_s=START_S)
        assert [process.is_alive(item) for item in light.started] == [False, True]
    finally:
        warm.close()


@pytest.mark.thorough
@pytest.mark.parametrize("change", [SECOND_THREAD, MISSING_MODULE])
def test_jobs_start_cold_with_a_note_if_the_warm_process_is_unusable(
    light: LightWarmProcess, tmp_path: Path, change: str, approved: Approved
) -> None:
    light.change = change
    unusable = WarmProcess({"PATH": os.environ["PATH"]})
    unusable.open()
    reason = "the warm process ended before it was ready: the worker's log says why"
    fixture = LocalEngineFixture(tmp_path, warm=unusable)
    try:
        with pytest.raises(WarmProcessUnavailable, match=reason):
            unusable.loaded_modules(wait_s=60)
        assert (unusable.status().mode, unusable.status().why) == ("cold", reason)
        plan = fixture.plan("completes")
        with pytest.raises(ConfigError, match=f"launcher: warm is not possible: {reason}. With auto, the job starts"):
            fixture.engine.start(plan)
        assert fixture.engine.find(plan.key, world_size=2, claimed_at=plan.claimed_at) is None
        handle = fixture.engine.start(_of_one_rank(plan, "auto"))
        assert handle.note == approved("note", reason=reason)
        assert _ended(fixture.engine, handle) is EndReason.COMPLETED
        wanted = fixture.engine.start(_of_one_rank(fixture.plan("completes"), "torchrun"))
        assert wanted.note is None
        assert _ended(fixture.engine, wanted) is EndReason.COMPLETED
    finally:
        unusable.close()
        fixture.clean_up()


def test_an_engine_without_a_warm_process_starts_cold_and_refuses_a_warm_only_job(
    tmp_path: Path, approved: Approved
) -> None:
    fixture = LocalEngineFixture(tmp_path)
    try:
        with pytest.raises(ConfigError) as raised:
            fixture.engine.start(replace(fixture.plan("completes"), launcher="warm"))
        assert str(raised.value) == approved("message")
        handle = fixture.engine.start(_of_one_rank(fixture.plan("completes"), "auto"))
        assert handle.note is None
        assert _ended(fixture.engine, handle) is EndReason.COMPLETED
    finally:
        fixture.clean_up()
