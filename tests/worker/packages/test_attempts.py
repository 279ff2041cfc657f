"""Attempts with packages of their own: their processes, and the turns of their runner while they are installed."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.db.database import Database
from tests.approved import Approved
from tests.disks import mounted
from tests.store.fixture import StoreFixture
from tests.worker.attempt import Attempt, wait_for
from tests.worker.attempts.fixture import INVENTORY, SimulatedRunnerFixture, worker_context
from tests.worker.engines.memory import MemoryEngine
from tests.worker.packages.fixture import Packages, isolation_of_this_host
from tests.worker.packages.index import BROKEN_BUILD, Index
from torchyard.contract.states import EndReason, JobState
from worker.host.untrusted import remove_inside
from worker.packages.rules import PackageRules

START = "agent"
"""torchrun is a fork, which saves one import of torch: its ranks are programs of their own."""
USES = """
import os, pathlib, sys
import alpha, torchyard
print("alpha", alpha.version, sys.prefix, os.environ["VIRTUAL_ENV"], flush=True)
own = pathlib.Path(alpha.__file__).parent
for folder in (own, own.parents[3], own.parents[4], own.parents[5], pathlib.Path(sys.argv[1])):
    for change in (lambda: (folder / "poison").write_text("x"), lambda: os.chmod(folder, 0o777)):
        try:
            change()
        except OSError:
            continue
        print("changed", folder, flush=True)
try:
    (own / "alpha.py").write_text("poison")
    print("changed alpha")
except OSError:
    pass
try:
    print(os.listdir(sys.argv[1]))
except OSError:
    pass
"""
IMPORTS_TORCH = "import torch\n"
READS_TORCH = """
import importlib.util, pathlib
assert pathlib.Path(importlib.util.find_spec("torch").origin).read_bytes()
"""
"""What an import of torch needs, without the seconds that it takes."""
FILLS = """
import pathlib
def build_wheel(folder, *_):
    (pathlib.Path.home() / "large").write_bytes(bytes(30_000_000))
    raise SystemExit("No space left on device")
"""


@pytest.mark.parametrize(
    ("program", "first"),
    [
        ({}, READS_TORCH),
        pytest.param({}, IMPORTS_TORCH, marks=pytest.mark.thorough),
        pytest.param({"module": "train"}, IMPORTS_TORCH, marks=pytest.mark.thorough),
        pytest.param({"command": "python", "args": ["train.py"]}, IMPORTS_TORCH, marks=pytest.mark.thorough),
    ],
)
def test_a_job_runs_in_its_environment_and_cannot_write_it(
    attempt: Attempt, packages: Packages, index: Index, program: dict[str, Any], first: str
) -> None:
    index.add("alpha")
    own, others = packages.installed("alpha\n"), packages.cache.root / "of-another-owner" / "venv"
    others.mkdir(parents=True)
    attempt.launcher = "torchrun"
    code = attempt.add_bundle({"train.py": first + USES})
    arguments = [*program.get("args", []), str(others)]
    spec = {"trainer": "script", "config": {"code": code, **program, "args": arguments}}
    attempt.start_spec(spec, world_size=1, environment=own.environment)
    assert attempt.report().reason is EndReason.COMPLETED, attempt.log("rank-0", "stderr")
    assert attempt.log("rank-0", "stdout") == f"alpha 1.0 {own.environment} {own.environment}\n"


@pytest.fixture
def requirements() -> str:
    return "alpha\n"


@pytest.fixture
def rules(index: Index) -> PackageRules:
    return PackageRules(index=index.url, isolation=isolation_of_this_host())


@pytest.fixture
def simulated(
    tmp_path: Path, database: Database, rules: PackageRules, requirements: str
) -> Generator[SimulatedRunnerFixture]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    (code / "requirements.txt").write_text(requirements)
    service = StoreFixture(database)
    config = {"code": f"file://{code}", "requirements": "requirements.txt"}
    job_id = service.submit(config=config, max_restarts=3)
    claim = service.starting(job_id, service.worker())
    engine = MemoryEngine(INVENTORY)
    context = worker_context(tmp_path, database, engine, allowed=(code,), package_rules=rules)
    fixture = SimulatedRunnerFixture(service, context, engine, claim)
    yield fixture
    fixture.close()
    remove_inside(tmp_path, "environments")


def test_the_owner_sees_that_packages_are_installed(simulated: SimulatedRunnerFixture, index: Index) -> None:
    index.add("alpha")
    index.released.clear()
    simulated.start_runner()
    index.reached.wait()
    wait_for(lambda: simulated.job.reason_message == "installs packages", "the reason")
    wait_for(lambda: any("installing requirements.txt from" in line for line in simulated.lines()), "the log")
    assert simulated.job.state == JobState.STARTING
    index.released.set()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    attempt = simulated.engine.attempts[simulated.key]
    assert attempt.plan.environment is not None
    assert attempt.plan.python == str(attempt.plan.environment / "bin" / "python")
    assert simulated.job.reason_message == "attempt 1 starts"
    attempt.ranks = 1
    simulated.write_log("hello\n")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    lines = [line.strip() for line in simulated.lines()]
    assert len([line for line in lines if line == "+ alpha==1.0"]) == 1
    assert lines[-1] == "hello"


def test_a_cancel_ends_an_installation(simulated: SimulatedRunnerFixture, index: Index, approved: Approved) -> None:
    index.add("alpha")
    index.released.clear()
    simulated.start_runner()
    index.reached.wait()
    simulated.request_stop()
    job = simulated.wait_for_end()
    assert job.state == JobState.CANCELLED
    assert job.reason_message == approved("reason_message")
    assert [*(simulated.context.packages.root).glob("*/[0-9a-f]*/*")] == []


@pytest.mark.thorough
def test_another_daemon_installs_again(simulated: SimulatedRunnerFixture, index: Index) -> None:
    index.add("alpha")
    index.released.clear()
    simulated.start_runner()
    index.reached.wait()
    simulated.detach()
    assert [*(simulated.context.packages.root).glob("*/[0-9a-f]*/*")] == []
    index.released.set()
    simulated.start_runner()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")


@pytest.mark.parametrize("requirements", ["gamma\n"])
def test_packages_that_cannot_be_installed_fail_the_job_at_once(
    simulated: SimulatedRunnerFixture, index: Index
) -> None:
    index.add_source("gamma", build=BROKEN_BUILD)
    simulated.start_runner()
    job = simulated.wait_for_end()
    assert (job.state, job.restarts) == (JobState.FAILED, 0)
    assert job.error is not None
    assert job.error["code"] == EndReason.LAUNCH_FAILED
    assert "command 'gcc' failed" in job.error["message"]
    assert any("command 'gcc' failed" in line for line in simulated.lines())


@pytest.mark.thorough
def test_an_index_that_does_not_answer_costs_no_restart(simulated: SimulatedRunnerFixture, index: Index) -> None:
    index.status = 503
    simulated.start_runner()
    job = simulated.wait_for_end()
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert "the packages cannot be downloaded now" in job.reason_message


@pytest.mark.thorough
@pytest.mark.timeout(600)  # uv itself asks again in each attempt
def test_a_job_goes_back_three_times_for_an_index_that_does_not_answer(
    simulated: SimulatedRunnerFixture, index: Index
) -> None:
    index.status = 503
    for number in range(1, 4):
        simulated.start_runner()
        job = simulated.wait_for_end()
        assert (job.state, job.restarts) == (JobState.QUEUED, 0), number
        simulated.claim = simulated.store.starting(simulated.claim.job_id, simulated.store.worker(f"box-{number}"))
    simulated.start_runner()
    job = simulated.wait_for_end()
    assert (job.state, job.restarts) == (JobState.FAILED, 0)
    assert job.error is not None
    assert job.error["code"] == EndReason.LAUNCH_FAILED
    assert job.error["message"].endswith("It was tried 4 times.")


@pytest.mark.thorough
@pytest.mark.parametrize("requirements", ["gamma\n"])
def test_an_attempt_that_fills_its_disk_again_and_again_ends(
    simulated: SimulatedRunnerFixture, index: Index, tmp_path: Path, approved: Approved
) -> None:
    index.add_source("gamma", build=FILLS)
    root = simulated.context.packages.root
    root.mkdir()
    with mounted(root, kibibytes=(1 << 20) + 20_000):  # more than 1 GiB, of which the build takes some
        simulated.start_runner()
        job = simulated.wait_for_end()
        remove_inside(tmp_path, root.name)
    assert (job.state, job.restarts) == (JobState.QUEUED, 0)
    assert job.reason_message == approved.of_row("reason_message")


@pytest.mark.parametrize(
    "rules",
    [
        PackageRules(allowed=False),
        PackageRules(isolation=replace(isolation_of_this_host(), level="strict")),
    ],
)
def test_a_worker_that_installs_nothing_says_so(simulated: SimulatedRunnerFixture, approved: Approved) -> None:
    simulated.start_runner()
    job = simulated.wait_for_end()
    assert job.state == JobState.FAILED
    assert job.error is not None
    assert (job.error["code"], job.error["message"].partition(": ")[0]) == (
        EndReason.CONFIG_ERROR,
        approved.of_row("message"),
    )
