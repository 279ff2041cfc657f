"""Which jobs cannot start warm, and what becomes of forked ranks when one of them, or their store, ends."""

from dataclasses import replace
from pathlib import Path
import signal

import pytest

from tests.worker.attempt import Attempt, wait_for
from tests.worker.engines.local.warm.light import Light
from tests.worker.engines.rigs import LocalRig
from torchyard.contract.job import EndReason
from torchyard.contract.records import ProcessIdentity
from torchyard.contract.rundir import process_title
from worker.engines.base import Ended, Plan
from worker.engines.local import orphans, process
from worker.engines.local.launchers.warm import obstacle

WARM = pytest.mark.parametrize("attempt", ["warm"], indirect=True)
LOADED = frozenset({"numpy", "torch", "yaml"})
READ_AT_IMPORT = (
    *("PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONPATH", "LD_PRELOAD", "LANG", "LC_ALL", "MALLOC_ARENA_MAX"),
    *("TORCH_LOGS", "TORCHDYNAMO_VERBOSE", "TORCH_HOME", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NVML_BASED_CUDA_CHECK"),
    *("HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_VERBOSITY", "TRITON_CACHE_DIR"),
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NPY_DISABLE_CPU_FEATURES"),
)
READ_LATER = (
    *("WANDB_PROJECT", "MY_LR", "TZ", "TMPDIR", "PATH", "HOME", "LANGUAGES", "MY_OMP_NUM_THREADS"),
    *("NCCL_DEBUG", "NCCL_P2P_DISABLE", "GLOO_SOCKET_IFNAME", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG"),
    *("TORCHYARD_JOB_ID", "PYTHONUNBUFFERED"),
)
MEETS = """
import os, pathlib, signal, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], f"ready-{os.environ['RANK']}").touch()
"""
FORKS_ONE_RANK = """
import errno
me, fork_, count = os.getpid(), os.fork, [0]
def fork_once():
    count[0] += os.getpid() != me
    if count[0] == 2:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    return fork_()
os.fork = fork_once
"""
"""The supervisor's second fork fails, as at a limit of processes."""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return replace(LocalRig(tmp_path).plan("completes"), env={})


@pytest.mark.parametrize("name", READ_AT_IMPORT)
def test_a_variable_that_is_read_at_import_needs_a_fresh_python(plan: Plan, name: str) -> None:
    found = obstacle(replace(plan, env={name: "x", "MY_LR": "1"}), loaded=LOADED)
    assert found == f"{name} must be set when Python starts"


def test_a_variable_that_is_read_later_does_not(plan: Plan) -> None:
    assert obstacle(replace(plan, env=dict.fromkeys(READ_LATER, "x")), loaded=LOADED) is None


@pytest.mark.parametrize("name", ["yaml.py", "yaml.pyc", "yaml.cpython-311-x86_64-linux-gnu.so", "numpy/__init__.py"])
def test_a_module_beside_the_script_that_is_named_like_a_loaded_one_needs_a_fresh_python(plan: Plan, name: str) -> None:
    folder = Path(plan.program[0]).parent
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    module = name.partition(".")[0].partition("/")[0]
    found = obstacle(plan, loaded=LOADED)
    assert found == f"the code has modules of its own that are named like installed ones: {module}"
    linked = folder / "elsewhere" / "train.py"
    linked.parent.mkdir()
    linked.symlink_to(plan.program[0])
    assert obstacle(replace(plan, program=(str(linked),)), loaded=LOADED) == found  # Python looks beside its target


@pytest.mark.parametrize("name", ["data.py", "yaml.txt", "numpy/readme.md"])
def test_other_files_beside_the_script_do_not(plan: Plan, name: str) -> None:
    path = Path(plan.program[0]).parent / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert obstacle(plan, loaded=LOADED) is None
    assert obstacle(replace(plan, program=("-m", "trainer")), loaded=LOADED) is None


@WARM
def test_a_killed_store_loses_the_attempt_and_leaves_nothing(attempt: Attempt) -> None:
    attempt.start_job(MEETS + "signal.pause()")
    attempt.wait_for_file("ready-0")
    attempt.wait_for_file("ready-1")
    process.send(_named(attempt, "store"), signal.SIGKILL)
    report = attempt.report()
    assert (report.reason, report.message) == (
        EndReason.WORKER_LOST,
        "the launcher was killed by SIGKILL (perhaps the host ran out of memory)",
    )
    assert attempt.left() == []


@WARM
def test_the_store_outlives_ranks_that_leave_by_themselves(attempt: Attempt) -> None:
    late = "if dist.get_rank() == 0: time.sleep(0.3); dist.distributed_c10d._get_default_store().set('late', 'x')"
    attempt.start_job(MEETS + late)
    assert attempt.report().reason is EndReason.COMPLETED
    assert attempt.left() == []


@WARM
def test_the_first_failure_counts_and_a_rank_that_sigterm_ends_is_no_cause(attempt: Attempt) -> None:
    attempt.start_job(MEETS + "if dist.get_rank() == 2: os._exit(7)\nsignal.pause()", world_size=3)
    report = attempt.report()
    assert (report.reason, report.rank, report.exit_code) == (EndReason.USER_ERROR, 2, 7)
    assert report.message == "rank 2 exited with code 7"


def test_a_fork_that_fails_leaves_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    light = Light(change=FORKS_ONE_RANK)
    monkeypatch.setattr(orphans, "start", light.start)
    warm = light.open()
    rig = LocalRig(tmp_path, warm=warm)
    try:
        handle = rig.engine.start(rig.plan("waits"))
        rig.finish(handle)
        wait_for(lambda: isinstance(rig.engine.poll(handle), Ended), "its end")
        seen = rig.engine.poll(handle)
        assert isinstance(seen, Ended)
        assert seen.report.reason is EndReason.WORKER_LOST
        assert "Resource temporarily unavailable" in seen.report.message
    finally:
        warm.close()
        rig.clean_up()


def _named(attempt: Attempt, role: str) -> ProcessIdentity:
    title = process_title(attempt.job_id, attempt.number, role).encode()
    (found,) = [item for item in attempt.left() if Path(f"/proc/{item.pid}/cmdline").read_bytes().startswith(title)]
    return found
