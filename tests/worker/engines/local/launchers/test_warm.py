"""Which jobs cannot start warm, and what happens to forked ranks when one of them or their agent ends."""

from dataclasses import replace
from pathlib import Path
import signal

import pytest

from tests.approved import Approved
from tests.worker.attempt import Attempt, wait_for
from tests.worker.engines.fixtures import LocalEngineFixture
from tests.worker.engines.local.warm.light_process import LightWarmProcess
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import process_title
from torchyard.contract.states import EndReason
from worker.engines.base import AttemptPlan, Ended
from worker.engines.local.launchers.warm import warm_start_obstacle
from worker.host import orphans, process

WARM = pytest.mark.parametrize("attempt", ["warm"], indirect=True)
LOADED = frozenset({"numpy", "torch", "yaml"})
READ_AT_IMPORT = (
    *("PYTHONHASHSEED", "PYTHONWARNINGS", "LD_PRELOAD", "LANG", "LC_ALL", "MALLOC_ARENA_MAX"),
    *("TORCH_LOGS", "TORCHDYNAMO_VERBOSE", "TORCH_HOME", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NVML_BASED_CUDA_CHECK"),
    *("HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_VERBOSITY", "TRITON_CACHE_DIR"),
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NPY_DISABLE_CPU_FEATURES"),
)
READ_LATER = (
    *("WANDB_PROJECT", "MY_LR", "TZ", "TMPDIR", "PATH", "HOME", "LANGUAGES", "MY_OMP_NUM_THREADS"),
    "PYTHONPATH",
    *("NCCL_DEBUG", "NCCL_P2P_DISABLE", "GLOO_SOCKET_IFNAME", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG"),
)
JOINS_GROUP = """
import os, pathlib, signal, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], f"ready-{os.environ['RANK']}").touch()
"""
FAILING_FORK = """
import errno
from worker.sandbox import namespaces
warm_process, count = os.getpid(), [0]
def failing(make):
    def fork():
        count[0] += os.getpid() != warm_process
        if count[0] == {number}:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return make()
    return fork
os.fork, namespaces.fork = failing(os.fork), failing(namespaces.fork)
"""
"""Makes one fork of the supervisor or the agent fail, as at a process limit."""


@pytest.fixture
def plan(tmp_path: Path) -> AttemptPlan:
    return LocalEngineFixture(tmp_path).plan("completes")


@pytest.mark.parametrize("name", READ_AT_IMPORT)
def test_a_variable_that_is_read_at_import_prevents_a_warm_start(
    plan: AttemptPlan, name: str, approved: Approved
) -> None:
    found = warm_start_obstacle(replace(plan, job_env={name: "x", "MY_LR": "1"}), loaded=LOADED)
    assert found == approved("output", name=name)


def test_a_variable_that_is_read_later_allows_a_warm_start(plan: AttemptPlan) -> None:
    assert warm_start_obstacle(replace(plan, job_env=dict.fromkeys(READ_LATER, "x")), loaded=LOADED) is None


@pytest.mark.parametrize("name", ["yaml.py", "yaml.pyc", "yaml.cpython-311-x86_64-linux-gnu.so", "numpy/__init__.py"])
def test_a_module_beside_the_script_with_the_name_of_a_loaded_one_prevents_a_warm_start(
    plan: AttemptPlan, name: str, approved: Approved
) -> None:
    folder = Path(plan.program[0]).parent
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    module = name.partition(".")[0].partition("/")[0]
    found = warm_start_obstacle(plan, loaded=LOADED)
    assert found == approved("output", module=module)
    linked = folder / "elsewhere" / "train.py"
    linked.parent.mkdir()
    linked.symlink_to(plan.program[0])
    assert (
        warm_start_obstacle(replace(plan, program=(str(linked),)), loaded=LOADED) == found
    )  # Python searches the folder of the target


@pytest.mark.parametrize("name", ["data.py", "yaml.txt", "numpy/readme.md"])
def test_other_files_beside_the_script_allow_a_warm_start(plan: AttemptPlan, name: str) -> None:
    path = Path(plan.program[0]).parent / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert warm_start_obstacle(plan, loaded=LOADED) is None
    assert warm_start_obstacle(replace(plan, program=("-m", "trainer")), loaded=LOADED) is None


@pytest.mark.thorough
@WARM
def test_a_killed_agent_ends_the_attempt_as_worker_lost(attempt: Attempt, approved: Approved) -> None:
    attempt.start_job(JOINS_GROUP + "signal.pause()")
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    process.send(_named(attempt, "agent"), signal.SIGKILL)
    report = attempt.report()
    assert (report.reason, report.message) == (
        EndReason.WORKER_LOST,
        approved("message"),
    )
    assert attempt.running_processes() == []


@WARM
def test_the_store_runs_until_all_ranks_have_exited(attempt: Attempt) -> None:
    late = "if dist.get_rank() == 0: time.sleep(0.3); dist.distributed_c10d._get_default_store().set('late', 'x')"
    attempt.start_job(JOINS_GROUP + late)
    assert attempt.report().reason is EndReason.COMPLETED
    assert attempt.running_processes() == []


@WARM
def test_the_first_failed_rank_is_reported_and_not_one_that_sigterm_ended(attempt: Attempt, approved: Approved) -> None:
    attempt.start_job(JOINS_GROUP + "if dist.get_rank() == 2: os._exit(7)\nsignal.pause()", world_size=3)
    report = attempt.report()
    assert (report.reason, report.rank, report.exit_code) == (EndReason.USER_ERROR, 2, 7)
    assert report.message == approved("message")


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.thorough), 2], ids=["agent", "rank"])
def test_a_failed_fork_ends_the_attempt_as_worker_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    light = LightWarmProcess(change=FAILING_FORK.format(number=number))
    monkeypatch.setattr(orphans, "start", light.start)
    warm = light.open()
    fixture = LocalEngineFixture(tmp_path, warm=warm)
    try:
        handle = fixture.engine.start(fixture.plan("waits"))
        fixture.wait_for_program(handle)
        wait_for(lambda: isinstance(fixture.engine.poll(handle), Ended), "its end")
        observation = fixture.engine.poll(handle)
        assert isinstance(observation, Ended)
        assert observation.report.reason is EndReason.WORKER_LOST
        assert "Resource temporarily unavailable" in observation.report.message
    finally:
        warm.close()
        fixture.clean_up()


@WARM
def test_the_processes_of_an_attempt_have_titles_whose_name_has_no_space(attempt: Attempt) -> None:
    attempt.start_job(JOINS_GROUP + "signal.pause()")
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    for role in ("supervisor", "agent", "rank 0", "rank 1"):
        name = Path(f"/proc/{_named(attempt, role).pid}/comm").read_text().rstrip("\n")
        assert name == process_title(attempt.job_id, attempt.number, role)[:15]
        assert " " not in name
    attempt.stop(grace=0)
    attempt.report()


def _named(attempt: Attempt, role: str) -> ProcessIdentity:
    title = process_title(attempt.job_id, attempt.number, role).encode()
    (found,) = [
        item for item in attempt.running_processes() if Path(f"/proc/{item.pid}/cmdline").read_bytes().startswith(title)
    ]
    return found
