"""A micro-batch that does not fit in memory is halved on every rank. Nothing else changes."""

from datetime import timedelta
from pathlib import Path
import resource
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from tests.approved import Approved
from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import Regression
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.batching import make_sampler
from trainer.memory import largest_fitting_batch
from trainer.precision import Precision
from trainer.sampler import Position
from trainer.train import Training
from trainer.world import joined

A_SAMPLE = 512 * 2**20


class Greedy(nn.Module):
    """A model that needs 512 MiB of addresses for each sample, and counts its training passes in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.get_buffer("calls").add_(1)
        torch.empty(len(inputs) * A_SAMPLE, dtype=torch.uint8)
        return inputs


def begin(capacity: list[int]) -> tuple[int, int, float, Tensor, bool]:
    """Starts a run on a rank with memory for `capacity[rank]` samples. Returns what it chose, and a random number."""
    with joined(timedelta(minutes=1)) as world:
        config = recipe(training={"per_device_batch_size": 10, "auto_batch": True})
        task = Regression(Greedy())
        status = Path("/proc/self/statm").read_text().split()
        limit = int(status[0]) * resource.getpagesize() + capacity[world.rank] * A_SAMPLE + A_SAMPLE // 2
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        training = Training(task, trainer="test", config=config, policy=CheckpointPolicy(), run=Run({}), world=world)
        resource.setrlimit(resource.RLIMIT_AS, before)
        calls = task.model.get_buffer("1.calls").item()
        clean = all(parameter.grad is None for parameter in task.model.parameters())
        return training.sampler.batch_size, training.sampler.global_batch, calls, torch.rand(1), clean


def test_the_batch_fits_every_rank_and_the_global_batch_stays() -> None:
    first, second = results(on_ranks(2, begin, [6, 3]))
    (plain, _) = results(on_ranks(2, begin, [30, 30]))
    assert first[:3] == second[:3] == (2, 20, 0.0)
    assert plain[:2] == (10, 20)
    assert torch.equal(first[3], plain[3])
    assert first[4]


class Wide(nn.Module):
    """A layer of more than 1 MiB that notes its passes."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 1 << 18)
        self.seen = seen

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append(0)
        return self.layer(inputs)[:, :5]


def connect() -> list[int]:
    """Returns in order: 0 for each pass of the model, and the number of elements of each exchange of the ranks."""
    seen: list[int] = []
    with joined(timedelta(minutes=1)) as world:
        exchange = distributed.all_reduce

        def noted(tensor: Tensor, **options: Any) -> Any:
            if options.get("group") is None:
                seen.append(tensor.numel())
            return exchange(tensor, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(distributed, "all_reduce", noted)
            largest_fitting_batch(
                Regression(Wide(seen)),
                batch_size=2,
                global_batch=4,
                batch_norm=False,
                config=recipe(training={"auto_batch": True}, distributed={"bucket_cap_mb": 1}),
                precision=Precision("fp32", world.device),
                world=world,
            )
    return seen


def test_ranks_connect_for_small_and_large_messages_before_memory_is_measured() -> None:
    for seen in results(on_ranks(2, connect)):
        assert seen[:3] == [1, 1 << 18, 0]


class Library(nn.Module):
    """A model whose library of kernels finds no memory for more than three samples."""

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > 3:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        return inputs


def begin_with_library() -> int:
    with joined(timedelta(minutes=1)) as world:
        config = recipe(training={"per_device_batch_size": 10, "auto_batch": True})
        task = Regression(Library())
        training = Training(task, trainer="test", config=config, policy=CheckpointPolicy(), run=Run({}), world=world)
        return training.sampler.batch_size


def test_a_shortage_that_a_library_reports_halves_too() -> None:
    assert results(on_ranks(1, begin_with_library)) == [2]


def choose_after_shortages() -> list[tuple[int, int]]:
    """Chooses batches for attempts that resume one from the other. Returns micro-batch and global batch."""
    chosen: list[tuple[int, int]] = []
    state = None
    with joined(timedelta(minutes=1)) as world:
        config = recipe(training={"per_device_batch_size": 10, "auto_batch": True})
        precision = Precision("fp32", world.device)
        for shortages in (1, 0, 1, 9):
            run = Run({})
            run.config["memory_shortages"] = shortages
            sampler = make_sampler(Regression(), config=config, precision=precision, world=world, run=run, state=state)
            state = Position(sampler, config.training).state_dict()
            chosen.append((sampler.batch_size, sampler.global_batch))
    return chosen


def test_an_attempt_that_ran_out_of_memory_halves_the_micro_batch_once_and_for_all_later_ones() -> None:
    first, second = results(on_ranks(2, choose_after_shortages))
    assert first == second == [(5, 20), (5, 20), (2, 20), (1, 20)]


def test_too_little_memory_for_one_sample_is_an_error(approved: Approved) -> None:
    (outcome,) = on_ranks(1, begin, [0])
    with pytest.raises(RuntimeError) as raised:
        raise outcome
    assert str(raised.value) == approved("message")
