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
from trainer.world import joined


def train(compiled: bool) -> tuple[list[Tensor], list[str]]:
    """Returns the weights and their names after an epoch."""
    with joined(timedelta(minutes=1)) as world:
        task = Regression()
        config = recipe(training={"epochs": 1, "per_device_batch_size": 10, "compile": compiled})
        Training(task, trainer="test", config=config, policy=CheckpointPolicy(), run=Run({}), world=world).train()
        return [item.detach().clone() for item in task.model.parameters()], list(task.model.state_dict())


def train_traced() -> tuple[list[Tensor], list[str]]:
    """Trains as `train(True)`, but runs Dynamo's graphs without a C++ compiler."""
    nn.Module.compile = partialmethod(nn.Module.compile, backend="eager")  # pyright: ignore[reportAttributeAccessIssue]
    return train(True)


def test_a_traced_model_learns_the_same_and_keeps_its_names() -> None:
    ((plain, names),) = results(on_ranks(1, train, False))
    ((traced, others),) = results(on_ranks(1, train_traced))
    assert names == others
    for ours, theirs in zip(traced, plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++, which this machine has not")
def test_a_compiled_model_learns_the_same_and_keeps_its_names(tmp_path: Path) -> None:
    ((plain, names),) = results(on_ranks(1, train, False))
    inductor = {"CACHE_DIR": str(tmp_path), "COMPILE_THREADS": "1", "CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    env = {f"TORCHINDUCTOR_{name}": value for name, value in inductor.items()}
    ((compiled, others),) = results(on_ranks(1, train, True, env=env))
    assert list(tmp_path.rglob("*.so"))
    assert names == others
    for ours, theirs in zip(compiled, plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_compile_without_a_compiler_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError) as raised:
        compile_in_place(nn.Linear(1, 1))
    assert str(raised.value) == approved("message")
