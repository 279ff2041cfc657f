"""A process that imports the trainer can be forked into ranks."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

from tests.trainer.ranks import PRELOADED, environment, job, on_ranks, results
from tests.trainer.runs import small_pictures
from torchyard.contract.attempts.rundir import RunDir
from trainer import __main__ as rank
from worker.engines.local.warm.preload import MODULES

RECORDING = f"""
import importlib, os, random, sys

class Recorder:
    # torch._C is complete when torch.cuda is imported, and nothing has used a device yet.
    def find_spec(self, name, path=None, target=None):
        if name == "torch.cuda":
            for asked in ("_cuda_getDeviceCount", "_cuda_init"):
                self.record(sys.modules["torch._C"], asked)

    def record(self, module, name):
        found.append(name)
        if original := getattr(module, name, None):
            setattr(module, name, lambda *given: calls.append(name) or original(*given))

found, calls = [], []
sys.meta_path.insert(0, Recorder())
import numpy
state = lambda: (random.getstate(), [*map(str, numpy.random.get_state()[2:])], numpy.random.get_state()[1].tobytes())
before = state()
for module in {(*MODULES, *PRELOADED)!r}:
    importlib.import_module(module)
"""


@pytest.mark.thorough
def test_the_imports_start_no_thread_and_no_cuda_and_draw_no_random_numbers() -> None:
    _run(f"""{RECORDING}
assert found == ["_cuda_getDeviceCount", "_cuda_init"]
assert calls == []
assert len(os.listdir("/proc/self/task")) == 1
assert state() == before
import torch
untouched = torch.Generator().manual_seed(torch.initial_seed())  # each process draws its own seed
assert torch.equal(torch.get_rng_state(), untouched.get_state())
torch.cuda.is_available()  # the recorder must record this call
assert calls or not torch.cuda._is_compiled()
""")


@pytest.mark.thorough
def test_a_process_forked_after_the_imports_computes_in_parallel() -> None:
    """The fork would hang if the parent had run a parallel region."""
    _run(f"""{RECORDING}
import torch
if not (child := os.fork()):
    torch.set_num_threads(2)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
    model(torch.randn(512, 512)).square().mean().backward()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""")


@pytest.mark.thorough
def test_transformers_is_imported_only_when_it_is_needed() -> None:
    others = {"transformers", "sklearn", "scipy", "torch._inductor.compile_fx"}
    _run(f"{RECORDING}\nassert not {others!r} & sys.modules.keys()")


@pytest.mark.parametrize("model", ["small_cnn", pytest.param("resnet18", marks=pytest.mark.thorough)])
def test_training_a_recipe_imports_no_further_modules(tmp_path: Path, model: str) -> None:
    run = job(tmp_path / "run", {"model": {"name": model}, "data": {"image_size": 32}, "training": {"max_steps": 1}})
    data = small_pictures(tmp_path)
    assert results(on_ranks(1, _imported, run, env=environment(run, data=data))) == [[]]


def _imported(run: RunDir) -> list[str]:
    before = {*sys.modules}
    rank.main()
    assert any(run.checkpoints.iterdir())
    return sorted({*sys.modules} - before)


def _run(code: str) -> None:
    """Runs code in a process whose libraries start no threads at import, but may start them to compute."""
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-P", "-c", code], env=env, check=True, timeout=120)
