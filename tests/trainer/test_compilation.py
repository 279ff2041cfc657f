from datetime import timedelta
from functools import partialmethod
from pathlib import Path
import shutil

import pytest
import torch
from torch import Tensor, nn

from tests.approved import Approved
from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import Regression
from torchyard.contract.errors import ConfigError
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.compilation import compile_in_place
from trainer.train import Training
from trainer.world import World, joined

Trained = tuple[list[Tensor], list[str]]


def train_both() -> list[Trained]:
    """Returns the weights and their names after one epoch: of the plain model, then of the compiled one."""
    with joined(timedelta(minutes=1)) as world:
        return [_train(compiled, world) for compiled in (False, True)]


def _train(compiled: bool, world: World) -> Trained:
    task = Regression()
    config = recipe(training={"epochs": 1, "per_device_batch_size": 10, "compile": compiled})
    Training(task, trainer="test", config=config, policy=CheckpointPolicy(), run=Run({}), world=world).train()
    return [item.detach().clone() for item in task.model.parameters()], list(task.model.state_dict())


def trace_both() -> list[Trained]:
    """Trains as `train_both`, but runs Dynamo's graphs without a C++ compiler."""
    nn.Module.compile = partialmethod(nn.Module.compile, backend="eager")  # pyright: ignore[reportAttributeAccessIssue]
    return train_both()


def check(both: list[Trained]) -> None:
    (plain, names), (compiled, others) = both
    assert names == others
    for ours, theirs in zip(compiled, plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_traced_model_learns_the_same_and_keeps_its_names() -> None:
    (both,) = results(on_ranks(1, trace_both))
    check(both)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++, which this machine has not")
def test_a_compiled_model_learns_the_same_and_keeps_its_names(tmp_path: Path) -> None:
    inductor = {"CACHE_DIR": str(tmp_path), "COMPILE_THREADS": "1", "CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    env = {f"TORCHINDUCTOR_{name}": value for name, value in inductor.items()}
    (both,) = results(on_ranks(1, train_both, env=env))
    assert list(tmp_path.rglob("*.so"))
    check(both)


def test_compile_without_a_compiler_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError) as raised:
        compile_in_place(nn.Linear(1, 1))
    assert str(raised.value) == approved("message")
