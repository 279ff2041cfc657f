"""The process group of the ranks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed

from tests.trainer.ranks import environment, job, on_ranks, results
from trainer import __main__ as trainer
from trainer.world import World


@pytest.mark.parametrize(("timeout", "seconds"), [("77s", 77), ("auto", 360)])
def test_the_groups_timeout_is_that_of_the_spec(tmp_path: Path, timeout: str, seconds: float) -> None:
    run = job(tmp_path, {"data": {"source": "digits"}, "distributed": {"timeout": timeout}}, stall_timeout="5m")
    assert results(on_ranks(1, _timeout, env=environment(run, data="digits"))) == [seconds]


def _timeout() -> float:
    """Returns the timeout in seconds of the process group in which the trainer trains."""
    found: list[float] = []

    def read_timeout(*_: Any, world: World, **__: Any) -> SimpleNamespace:
        assert world.size == 1
        group: Any = distributed.group.WORLD
        found.append(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
        return SimpleNamespace(train=lambda: None)

    setattr(trainer, "make_training", read_timeout)  # noqa: B010 this rank is a process of its own
    trainer.main()
    return found[0]
