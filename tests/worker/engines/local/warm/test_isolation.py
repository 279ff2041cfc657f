"""A job cannot see what an earlier job did in its forks, and the warm process itself has no GPU and no thread."""

import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

from tests.processes import kill_attempt
from tests.warm import identity
from tests.worker.attempt import Attempt
from torchyard.contract.states import EndReason
from worker.engines.local.warm.manager import WarmProcess

ROOT = Path(__file__).parents[5]
WRITES_STATE = """
import gc, json, locale, multiprocessing, os, pathlib, random, signal, sys, tempfile, threading, warnings
import numpy, torch, torchyard
def state():
    return {
        "environment": {name: value for name, value in os.environ.items() if name != "MASTER_PORT"},
        "modules": sorted(sys.modules),
        "path": sys.path,
        "folder": os.getcwd(),
        "umask": [os.umask(0o22), os.umask(0o22)],
        "patched": torch.nn.Linear.forward.__name__,
        "left": [hasattr(torch, "left"), hasattr(torchyard, "left"), json.loads("1")],
        "defaults": [str(torch.get_default_dtype()), torch.get_num_threads(), torch.is_grad_enabled()],
        "temporary": tempfile.tempdir,
        "numpy": repr(numpy.geterr()),
        "warnings": len(warnings.filters),
        "handlers": [repr(signal.getsignal(signal.SIGUSR2)), repr(signal.getsignal(signal.SIGTERM))],
        "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "locale": locale.setlocale(locale.LC_ALL),
        "collector": gc.isenabled(),
        "nice": os.nice(0),
        "method": multiprocessing.get_start_method(allow_none=True),
    }
def draws():
    state = numpy.random.get_state(legacy=False)["state"]["key"].tolist()
    key = multiprocessing.current_process().authkey.hex()
    return [random.random(), state[:4], numpy.random.rand(), torch.initial_seed(), torch.rand(1).item(), key]
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
(root / f"state-{os.environ['RANK']}.json").write_text(json.dumps([state(), draws()]))
"""
CHANGES_STATE = """
import types
os.environ["LEFT"] = "x"
os.environ.pop("OMP_NUM_THREADS")
sys.modules["left"] = types.ModuleType("left")
del sys.modules["torch.nn.functional"]
sys.path.insert(0, "/left")
os.chdir("/")
os.umask(0o77)
torch.left = torchyard.left = json.loads = print
torch.nn.Linear.forward = print
torch.set_default_dtype(torch.float64)
torch.set_num_threads(2)
torch.set_grad_enabled(False)
torch.manual_seed(1), numpy.random.seed(1), random.seed(1)
numpy.seterr(all="raise")
warnings.simplefilter("error")
for number in (signal.SIGUSR2, signal.SIGTERM): signal.signal(number, lambda *_: None)
threading.Thread(target=signal.pause, daemon=True).start()
left = open("/dev/null")
locale.setlocale(locale.LC_ALL, "C")
gc.disable()
os.nice(1)
tempfile.tempdir = "/left"
multiprocessing.set_start_method("spawn")
torch.ones(300, 300) @ torch.ones(300, 300)
"""
COUNTS_CUDA_CALLS = """
import sys, torch
calls = []
for name in ("_cuda_getDeviceCount", "_cuda_init", "_cuda_isInBadFork"):
    if hasattr(torch._C, name):
        setattr(torch._C, name, lambda *_, name=name: calls.append(name) or 0)
from worker.engines.local.warm import preload
preload.load()
sys.exit(f"called: {calls}" if calls else 0)
"""


def _states(attempt: Attempt, text: str) -> list[tuple[dict[str, Any], list[Any]]]:
    attempt.start(text, world_size=2)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    found = [(attempt.run.job / f"state-{rank}.json").read_text() for rank in range(2)]
    return [json.loads(attempt.normalized(text)) for text in found]


def test_the_changes_of_a_job_are_not_visible_to_the_next(tmp_path: Path, warm_process: WarmProcess) -> None:
    attempts = [Attempt.create(tmp_path / name, warm=warm_process, launcher="warm") for name in ("one", "two")]
    try:
        one = _states(attempts[0], WRITES_STATE + CHANGES_STATE)
        two = _states(attempts[1], WRITES_STATE)
    finally:
        assert [kill_attempt(item.job_id, item.number) for item in attempts] == [[], []]
    for (before, _), (after, _) in zip(one, two, strict=True):
        assert after == before
    for position in range(len(one[0][1])):  # the four ranks draw four different values
        drawn = [str(draws[position]) for _, draws in (*one, *two)]
        assert len(set(drawn)) == 4, drawn


def test_the_warm_process_has_one_thread_and_no_gpu(warm_process: WarmProcess) -> None:
    assert warm_process.loaded_modules(wait_s=0)
    folder = Path(f"/proc/{identity().pid}")
    assert len(list((folder / "task").iterdir())) == 1
    open_files = [str(path.readlink()) for path in (folder / "fd").iterdir()]
    assert [path for path in open_files if "nvidia" in path] == []
    assert len([path for path in open_files if path.startswith("socket:")]) == 1  # to the worker
    assert "libcuda.so" not in (folder / "maps").read_text()


@pytest.mark.thorough
def test_the_preloaded_modules_do_not_use_the_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTS_CUDA_CALLS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


REHEARSES = """
import sys, weakref
from types import ModuleType
from worker.engines.local.launchers import fork, rehearsal
from worker.engines.local.warm import preload
preload.load()
assert not [item for item in weakref.finalize._registry if item.peek()[1].__module__ == "torch.library"]
sys.modules["worker.later"] = ModuleType("worker.later")
fork._forget_modules(recipe=False)
left = [name for name in sys.modules if name.partition(".")[0] in ("worker", "trainer")]
sys.exit(f"a script would find {left}" if left else 0)
"""


@pytest.mark.thorough
def test_a_rank_need_not_forget_what_the_warm_process_has_forgotten() -> None:
    subprocess.run([sys.executable, "-c", REHEARSES], check=True, timeout=300)
