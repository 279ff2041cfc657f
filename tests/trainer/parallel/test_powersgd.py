"""PowerSGD compresses, works with several buckets on Gloo, and resumes exactly."""

from collections.abc import Sequence
import io
import math
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.parallel.test_buckets import WIDTH, several_buckets
from tests.trainer.parallel.toy import MINUTE, begin, equal, weights
from tests.trainer.ranks import on_ranks, results
from tests.trainer.runs import same
from trainer.parallel import Strategy
from trainer.parallel.powersgd import RANK, START
from trainer.world import World, joined

SAVED = START + 2
END = START + 4


def train(strategy: Strategy, model: nn.Module, world: World, steps: Sequence[int]) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step * 100 + world.rank)
        with strategy.micro_batch(last=True):
            (strategy.model(torch.randn(8, WIDTH, generator=generator)) - 1).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad)
                parameter.grad = None
        strategy.after_step(step, skipped=torch.zeros(()))


def loaded(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def saved_by_rank_0(strategy: Strategy, world: World) -> dict[str, Any]:
    return loaded(world.gather(strategy.state_dict())[0])


def save_and_resume() -> dict[str, Any]:
    keys = {"comm_hook": "powersgd", "bucket_cap_mb": 1}
    with joined(MINUTE) as world:
        model = several_buckets()
        strategy = begin(model, world, **keys)
        train(strategy, model, world, range(1, START + 1))
        before = [weight.clone() for weight in weights(model)]
        train(strategy, model, world, [START + 1])
        moved = [new - old for new, old in zip(weights(model), before, strict=True)]
        train(strategy, model, world, range(START + 2, SAVED + 1))
        at, state = weights(model), saved_by_rank_0(strategy, world)
        train(strategy, model, world, range(SAVED + 1, END + 1))
        return {
            "straight": weights(model),
            "resumed": resume(at, state, world, **keys),
            "forgetful": resume(at, {}, world, **keys),
            "other buckets": resume(at, state, world, comm_hook="powersgd", bucket_cap_mb=25),
            "ranks": [rank_of(move) for move in moved if move.ndim == 2],
            "at": at,
            "state": state,
        }


def resume(at: list[Tensor], state: dict[str, Any], world: World, **keys: Any) -> list[Tensor]:
    model = several_buckets()
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), at, strict=True):
            parameter.copy_(weight)
    strategy = begin(model, world, **keys)
    strategy.load_state_dict(state)
    train(strategy, model, world, range(SAVED + 1, END + 1))
    return weights(model)


def threads_of_products() -> set[bool]:
    """Trains with compressed gradients. Returns whether products of matrices were computed in the main thread."""
    seen: set[bool] = set()
    multiply = torch.bmm

    def noted(*arguments: Any, **named: Any) -> Tensor:
        seen.add(threading.current_thread() is threading.main_thread())
        return multiply(*arguments, **named)

    torch.bmm = noted
    with joined(MINUTE) as world:
        model = several_buckets()
        train(begin(model, world, comm_hook="powersgd", bucket_cap_mb=1), model, world, range(1, START + 3))
    return seen


def test_matrices_are_multiplied_in_the_thread_whose_number_of_threads_is_set() -> None:
    assert results(on_ranks(2, threads_of_products)) == [{True}, {True}]


def resume_alone(at: list[Tensor], state: dict[str, Any]) -> tuple[list[Tensor], int]:
    with joined(MINUTE) as world:
        found = resume(at, state, world, comm_hook="powersgd", bucket_cap_mb=1)
        return found, len(state["powersgd"]["buckets"])


@pytest.mark.thorough
def test_a_resumed_run_ends_bit_equal() -> None:
    one, other = results(on_ranks(2, save_and_resume))
    assert set(one["ranks"]) == {RANK}
    assert equal(one["straight"], one["resumed"])
    assert not equal(one["straight"], one["forgetful"])
    for key in ("straight", "resumed", "other buckets"):
        assert equal(one[key], other[key])
    assert all(bool(weight.isfinite().all()) for weight in one["other buckets"])
    assert len(one["state"]["powersgd"]["buckets"]) > 1
    # At another world size, errors and matrices start anew.
    ((found, buckets),) = results(on_ranks(1, resume_alone, one["at"], one["state"]))
    assert buckets > 1
    assert all(bool(weight.isfinite().all()) for weight in found)


def overflow() -> dict[str, Any]:
    """Takes steps that overflow on one rank and are skipped, the first compressed one, too; then others.

    The last one overflows in one of its buckets alone.
    """
    with joined(MINUTE) as world:
        model = several_buckets()
        strategy = begin(model, world, comm_hook="powersgd", bucket_cap_mb=1)
        train(strategy, model, world, range(START))
        skipped: list[bool] = []
        unchanged: list[bool] = []
        finite = True
        for step in (START, START + 2, START + 4):
            earlier = saved_by_rank_0(strategy, world)["powersgd"]["buckets"]
            with strategy.micro_batch(last=True):
                _overflow(strategy, model, world, all_buckets=step < START + 4)
            skipped.append(
                any(not bool(item.grad.isfinite().all()) for item in model.parameters() if item.grad is not None)
            )
            model.zero_grad()
            strategy.after_step(step + 1, skipped=torch.ones(()))
            saved = saved_by_rank_0(strategy, world)["powersgd"]["buckets"]
            unchanged.append(same(saved, earlier))
            matrices = [bucket[name] for bucket in saved for name in ("p", "q")]
            finite &= all(bool(matrix.isfinite().all()) for matrix in matrices)
            train(strategy, model, world, [step + 2])
        before = weights(model)
        train(strategy, model, world, [START + 7])
        moved = [new - old for new, old in zip(weights(model), before, strict=True)]
        return {
            "skipped": skipped,
            "unchanged": unchanged,
            "finite": finite,
            "weights": weights(model),
            "ranks": [rank_of(move) for move in moved if move.ndim == 2],
        }


def _overflow(strategy: Strategy, model: nn.Module, world: World, *, all_buckets: bool) -> None:
    """Makes gradients of which those of rank 1 are infinite: all, or those of the parameter in the last bucket."""
    first = next(model.parameters())
    spoilt = world.rank == 1

    def spoil(grad: Tensor) -> Tensor:
        return grad * (math.inf if spoilt else 1.0)

    handle = None if all_buckets else first.register_hook(spoil)
    factor = math.inf if spoilt and all_buckets else 1.0
    (strategy.model(torch.ones(1, WIDTH)).sum() * factor).backward()
    if handle is not None:
        handle.remove()


def test_an_overflowed_step_does_not_affect_later_steps() -> None:
    one, other = results(on_ranks(2, overflow))
    assert one["skipped"] == other["skipped"] == [True, True, True]
    assert one["unchanged"] == other["unchanged"] == [False, True, True]  # before the first one there is nothing
    assert one["finite"] and other["finite"]
    assert set(one["ranks"]) == {RANK}
    assert equal(one["weights"], other["weights"])


def rank_of(matrix: Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix))
