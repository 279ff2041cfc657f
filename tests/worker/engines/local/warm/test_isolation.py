"""What one job does in its forks, the next one cannot see; and the warm process has nothing that is not for them."""

import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

from tests.warm import identity
from tests.worker.attempt import Attempt
from torchyard.contract.job import EndReason
from worker.engines.local import process
from worker.engines.local.warm.keeper import WarmProcess

ROOT = Path(__file__).parents[5]
LOOKS = """
import gc, json, locale, multiprocessing, os, pathlib, random, signal, sys, tempfile, threading, warnings
import numpy, torch, torchyard
def looks():
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
(root / f"looks-{os.environ['RANK']}.json").write_text(json.dumps([looks(), draws()]))
"""
LEAVES = """
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
COUNTS = """
import sys, torch
calls = []
for name in ("_cuda_getDeviceCount", "_cuda_init", "_cuda_isInBadFork"):
    if hasattr(torch._C, name):
        setattr(torch._C, name, lambda *_, name=name: calls.append(name) or 0)
from worker.engines.local.warm import preload
preload.load()
sys.exit(f"called: {calls}" if calls else 0)
"""


def _looks(attempt: Attempt, text: str) -> list[tuple[dict[str, Any], list[Any]]]:
    attempt.start(text, world_size=2)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    found = [(attempt.run.job / f"looks-{rank}.json").read_text() for rank in range(2)]
    return [json.loads(text.replace(str(attempt.run.root), "RUN").replace(attempt.job_id, "JOB")) for text in found]


def test_nothing_that_a_job_does_can_be_seen_by_the_next(tmp_path: Path, warm_process: WarmProcess) -> None:
    attempts = [Attempt.create(tmp_path / name, warm=warm_process, launcher="warm") for name in ("one", "two")]
    try:
        one = _looks(attempts[0], LOOKS + LEAVES)
        two = _looks(attempts[1], LOOKS)
    finally:
        assert [process.kill_attempt(item.job_id, item.number) for item in attempts] == [[], []]
    for (before, _), (after, _) in zip(one, two, strict=True):
        assert after == before
    for position in range(len(one[0][1])):  # of everything that is drawn, each of the four ranks has its own
        drawn = [str(draws[position]) for _, draws in (*one, *two)]
        assert len(set(drawn)) == 4, drawn


def test_the_warm_process_has_one_thread_and_no_gpu(warm_process: WarmProcess) -> None:
    assert warm_process.modules(wait_s=0)
    folder = Path(f"/proc/{identity().pid}")
    assert len(list((folder / "task").iterdir())) == 1
    open_files = [str(path.readlink()) for path in (folder / "fd").iterdir()]
    assert [path for path in open_files if "nvidia" in path] == []
    assert len([path for path in open_files if path.startswith("socket:")]) == 1  # the worker's
    assert "libcuda.so" not in (folder / "maps").read_text()


@pytest.mark.thorough
def test_what_a_warm_process_imports_asks_no_gpu() -> None:
    asked = subprocess.run([sys.executable, "-c", COUNTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stderr) == (0, "")
