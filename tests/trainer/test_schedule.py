from collections.abc import Sequence
import io
import math
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from torchyard.contract.recipes import SchedulerConfig
from trainer.schedule import Schedule, set_lr

NAN = math.nan


def schedule(config: dict[str, Any], *, total_steps: int = 8, mode: Literal["min", "max"] = "min") -> Schedule:
    """Returns a schedule of epochs of two steps."""
    return Schedule(
        SchedulerConfig.model_validate(config), base_lr=1.0, total_steps=total_steps, steps_per_epoch=2, mode=mode
    )


def plateau_rates(made: Schedule, values: Sequence[float | None], *, first: int = 1) -> list[float]:
    """Returns the rates of step `first` and the following ones, with one step an evaluation."""
    rates: list[float] = []
    for step, value in enumerate(values, start=first):
        rates.append(made.lr(step, epochs=step - 1))
        made.observe(value, step=step)
    return rates


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"name": "constant"}, [1.0] * 8),
        ({"name": "constant", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"name": "step", "step_epochs": 1}, [1.0, 1.0, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]),
        ({"name": "step", "step_epochs": 2, "gamma": 0.5}, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5]),
        ({"name": "step", "step_epochs": 1, "warmup_steps": 3}, [1 / 3, 2 / 3, 1.0, 0.1, 0.01, 0.01, 0.001, 0.001]),
        ({"name": "step", "step_epochs": 0.5}, [1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7]),
        ({"name": "step", "step_epochs": 1.2, "gamma": 0.5}, [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25]),
        ({"name": "constant", "warmup_epochs": 2}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"name": "constant", "warmup_epochs": 0.01}, [1.0] * 8),
        ({"name": "step", "step_epochs": 1, "warmup_epochs": 1.5}, [1 / 3, 2 / 3, 1.0, 0.1, 0.01, 0.01, 0.001, 0.001]),
        ({"name": "cosine"}, [1.0, 0.961940, 0.853553, 0.691342, 0.5, 0.308658, 0.146447, 0.038060]),
        ({"name": "cosine", "min_lr": 0.5, "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 0.926777, 0.75, 0.573223]),
        ({"name": "cosine", "min_lr": 0.5, "warmup_epochs": 2}, [0.25, 0.5, 0.75, 1.0, 1.0, 0.926777, 0.75, 0.573223]),
        ({"name": "plateau"}, [1.0] * 8),
        ({"name": "plateau", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_rate_of_each_step(config: dict[str, Any], expected: list[float]) -> None:
    made = schedule(config)
    rates = [made.lr(step, epochs=(step - 1) / 2) for step in range(1, 9)]
    assert rates == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("config", "mode", "values", "expected"),
    [
        # patience 1: the second bad value in a row drops the rate, and the count restarts
        ({}, "min", [3, 4, 3, 2, 2, 2, 1], [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.01]),
        ({}, "max", [3, 4, 3, 2, 2, 2, 1], [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 0.01]),
        ({}, "min", [3, 4, 2, 3, 1, 2, 3, 3], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1]),
        ({"patience": 0}, "min", [3, 3, 2, 2, 1], [1.0, 1.0, 0.1, 0.1, 0.01]),
        ({"min_lr": 0.05}, "min", [1, 1, 1, 1, 1, 1], [1.0, 1.0, 1.0, 0.1, 0.1, 0.05]),
        ({"min_lr": 2.0}, "min", [1, 1, 1, 1], [1.0, 1.0, 1.0, 1.0]),
        # NaN is not an improvement, and later values need not be better than NaN
        ({}, "min", [3, NAN, NAN, 2, 1], [1.0, 1.0, 1.0, 0.1, 0.1]),
        ({}, "max", [NAN, NAN, 1, 2], [1.0, 1.0, 0.1, 0.1]),
        # an evaluation without the metric does not count
        ({}, "min", [3, None, 4, None, None, 4, 4], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1]),
        # within the warm-up bad values do not count, but later ones must be better than the best: 1, not 5
        ({"warmup_steps": 4}, "min", [1, 5, 5, 5, 5, 5, 5], [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 0.1]),
        ({"warmup_steps": 2}, "min", [2, 1, 1.5, 1.5, 1.5], [0.5, 1.0, 1.0, 1.0, 0.1]),
        ({"warmup_steps": 3}, "min", [NAN, NAN, NAN, 5, 4], [1 / 3, 2 / 3, 1.0, 1.0, 1.0]),
    ],
)
def test_the_rate_on_a_plateau(
    config: dict[str, Any], mode: Literal["min", "max"], values: list[float | None], expected: list[float]
) -> None:
    made = schedule({"name": "plateau", "patience": 1, **config}, mode=mode)
    assert plateau_rates(made, values) == pytest.approx(expected)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, NAN]), max_size=30),
    st.integers(0, 4),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from(["min", "max"]),
)
def test_a_plateau_is_the_same_as_torchs(
    values: list[float], patience: int, gamma: float, min_lr: float, mode: Literal["min", "max"]
) -> None:
    config = {"name": "plateau", "patience": patience, "gamma": gamma, "min_lr": min_lr}
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = ReduceLROnPlateau(
        optimizer, mode=mode, factor=min(gamma, 0.999999999), patience=patience, threshold=0, min_lr=min_lr, eps=0
    )
    expected: list[float] = []
    for value in values:
        expected.append(optimizer.param_groups[0]["lr"])
        torchs.step(value)
    assert plateau_rates(schedule(config, mode=mode), values) == pytest.approx(expected, rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, NAN, None]), max_size=20), st.integers(0, 20), st.integers(0, 5))
def test_a_resumed_plateau_equals_an_uninterrupted_one(values: list[float | None], cut: int, warmup: int) -> None:
    cut = min(cut, len(values))
    config = {"name": "plateau", "patience": 1, "warmup_steps": warmup}
    first = schedule(config)
    rates = plateau_rates(first, values[:cut])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = schedule(config)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert rates + plateau_rates(second, values[cut:], first=cut + 1) == plateau_rates(schedule(config), values)


@settings(deadline=None)
@given(
    st.sampled_from(["constant", "step", "cosine", "plateau"]),
    st.integers(0, 50),
    st.integers(1, 40),
    st.integers(1, 5),
)
def test_every_rate_is_above_zero_and_at_most_the_base_rate(name: str, warmup: int, total: int, epochs: int) -> None:
    made = schedule({"name": name, "warmup_steps": warmup, "step_epochs": 1}, total_steps=total)
    rates = [made.lr(step, epochs=step * epochs / (total + 1)) for step in range(1, total + 1)]
    assert all(0 < rate <= 1 for rate in rates)
    rising, falling = rates[:warmup], rates[warmup:]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)


def test_a_warm_up_longer_than_the_run_stays_above_zero() -> None:
    made = schedule({"warmup_steps": 100}, total_steps=10)
    assert [made.lr(step, epochs=0) for step in (1, 10)] == pytest.approx([0.01, 0.1])


def test_efficientnets_drops_come_every_2_4_epochs() -> None:
    """0.97 every 2.4 epochs (Tan and Le, arXiv 1905.11946), at the first step that begins then."""
    made = schedule({"name": "step", "step_epochs": 2.4, "gamma": 0.97})
    steps = 10
    rates = [made.lr(step + 1, epochs=step / steps) for step in range(240)]
    assert [step for step in range(1, 240) if rates[step] != rates[step - 1]] == list(range(24, 240, 24))
    assert rates[-1] == pytest.approx(0.97**9)


def test_a_resumed_warm_up_in_epochs_keeps_its_steps() -> None:
    config = SchedulerConfig(name="constant", warmup_epochs=2.5)
    first, more_ranks = (
        Schedule(config, base_lr=1.0, total_steps=90, steps_per_epoch=steps, mode="min") for steps in (10, 9)
    )
    assert (first.warmup, more_ranks.warmup) == (25, 22)
    more_ranks.load_state_dict(first.state_dict())
    assert more_ranks.warmup == 25


def test_steps_after_the_last_keep_the_last_rate() -> None:
    made = schedule({"name": "cosine", "min_lr": 0.25}, total_steps=4)
    assert [made.lr(step, epochs=0) for step in (5, 9)] == pytest.approx([0.25, 0.25])


def test_every_group_gets_the_rate() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([{"params": [item]} for item in model.parameters()], lr=1.0)
    set_lr(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
