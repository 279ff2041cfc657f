"""Post-local SGD: all-reduced gradients in the warm-up, then separate ranks, averaged at every period."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.trainer.parallel.toy import MINUTE, Toy, alone, begin, close, descend, equal, weights
from tests.trainer.ranks import on_ranks, results
from trainer.world import joined

WARMUP, PERIOD = 2, 3
NORM = 0.4
KEYS: dict[str, Any] = {"strategy": "local_sgd", "local_sgd": {"warmup_steps": WARMUP, "period": PERIOD}}
STEPS = WARMUP + PERIOD + 2


def toy(start: Sequence[Tensor] | None = None) -> Toy:
    """A toy model with one frozen parameter."""
    model = Toy()
    model.first.bias.requires_grad_(False)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start or weights(model), strict=True):
            parameter.copy_(value)
    return model


def train_and_settle() -> dict[str, list[Tensor]]:
    found: dict[str, list[Tensor]] = {}
    with joined(MINUTE) as world:
        model = toy()
        strategy = begin(model, world, **KEYS)
        for step in range(1, STEPS + 1):
            descend(strategy, world, [step], parts=2, max_norm=NORM)
            found[str(step)] = weights(model)
        own, state = weights(model), strategy.state_dict()
        shadow = {name: torch.full_like(item, world.rank) for name, item in model.named_parameters()}
        strategy.sync_ranks(shadow)
        found["synced"] = weights(model)
        found["shadow"] = list(shadow.values())
        # A stop saves the weights of each rank, and a resume restores them.
        model = toy(own)
        strategy = begin(model, world, **KEYS)
        strategy.load_state_dict(state)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), own, strict=True):
                parameter.copy_(value)
        strategy.sync_ranks()
        found["resumed and synced"] = weights(model)
        descend(strategy, world, [STEPS + 1], parts=2, max_norm=NORM)
        found["resumed"] = weights(model)
        return found


def together(start: Sequence[Tensor] | None, steps: Sequence[int]) -> list[Tensor]:
    return alone(toy(start), steps, ranks=range(2), parts=2, max_norm=NORM)


def apart(start: Sequence[Tensor], steps: Sequence[int]) -> list[list[Tensor]]:
    """Returns the weights of each rank."""
    return [alone(toy(start), steps, ranks=[rank], parts=2, max_norm=NORM) for rank in range(2)]


def mean(of: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.stack(each).mean(0) for each in zip(*of, strict=True)]


def test_weights_are_averaged_at_each_period_and_when_ranks_are_synchronized() -> None:
    one, other = results(on_ranks(2, train_and_settle))
    met = WARMUP + PERIOD
    for step in range(1, WARMUP + 1):
        assert close(one[str(step)], together(None, range(1, step + 1)))
        assert equal(one[str(step)], other[str(step)])
    warm = one[str(WARMUP)]
    for step in range(WARMUP + 1, met):
        for found, own in zip((one, other), apart(warm, range(WARMUP + 1, step + 1)), strict=True):
            assert close(found[str(step)], own)
    assert close(one[str(met)], mean(apart(warm, range(WARMUP + 1, met + 1))))
    assert not close(one[str(STEPS)], other[str(STEPS)], within=1e-4)
    synced = mean(apart(one[str(met)], range(met + 1, STEPS + 1)))
    for key in ("synced", "resumed and synced"):
        assert close(one[key], synced)
    assert close(one["resumed"], mean(apart(synced, [STEPS + 1])))  # the second period ends there
    for key in (str(met), "synced", "resumed and synced"):
        assert equal(one[key], other[key])

    frozen = [name for name, _ in toy().named_parameters()].index("first.bias")
    for rank, found in enumerate((one, other)):
        for index, shadow in enumerate(found["shadow"]):
            assert bool((shadow == (rank if index == frozen else 0.5)).all())


def begin_differently() -> tuple[bool, list[Tensor]]:
    with joined(MINUTE) as world:
        model = Toy(seed=world.rank)
        strategy = begin(model, world, strategy="local_sgd")
        return strategy.local, weights(strategy.model)


def test_without_a_warm_up_all_ranks_start_with_rank_0s_weights() -> None:
    for local, found in results(on_ranks(2, begin_differently)):
        assert local
        assert equal(found, weights(Toy(seed=0)))
