"""The process group of the ranks."""

from collections.abc import Callable
from datetime import timedelta
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed

from tests.trainer.ranks import environment, job, on_ranks, results
from trainer import __main__ as trainer
from trainer.world import World, joined


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
        return SimpleNamespace(train=lambda: False, position=SimpleNamespace(ended=False))

    setattr(trainer, "make_training", read_timeout)  # noqa: B010 this rank is a process of its own
    trainer.main()
    return found[0]


@pytest.mark.parametrize("share", [World.gather, World.collect, World.from_rank_0])
def test_what_another_rank_sends_runs_no_code(tmp_path: Path, share: Callable[[World, object], object]) -> None:
    executed = tmp_path / "executed"
    assert any(isinstance(outcome, Exception) for outcome in on_ranks(2, _share_payload, share, executed))
    assert not executed.exists()


class _Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._path),)


def _share_payload(share: Callable[[World, object], object], path: Path) -> None:
    with joined(timedelta(seconds=60)) as world:
        share(world, _Payload(path))
