import io
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch

from tests.approved import Approved
from torchyard.contract.recipes import EarlyStoppingConfig
from trainer.stopping import EarlyStopping, improves

NAN = math.nan

values_ = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf, NAN]), max_size=25)


def stopping(**config: Any) -> EarlyStopping:
    return EarlyStopping(EarlyStoppingConfig.model_validate(config))


def decisions(rule: EarlyStopping, values: list[float], *, first: int = 1) -> list[bool]:
    return [rule.observe({"val/loss": value}, epoch=epoch) for epoch, value in enumerate(values, start=first)]


def test_which_values_are_improvements() -> None:
    assert improves(1.0, None, mode="min")
    assert not improves(NAN, None, mode="min")
    assert [improves(value, 1.0, mode="min") for value in (0.9, 1.0, 1.1, NAN)] == [True, False, False, False]
    assert [improves(value, 1.0, mode="max") for value in (0.9, 1.0, 1.1, NAN)] == [False, False, True, False]
    assert [improves(value, 1.0, mode="min", by_more_than=0.25) for value in (0.75, 0.7)] == [False, True]
    assert improves(1.0, math.inf, mode="min")
    assert not improves(math.inf, math.inf, mode="min")


@pytest.mark.parametrize(
    ("config", "values", "stop_at"),
    [
        ({"patience": 1}, [3, 2, 2], 3),
        ({"patience": 2}, [3, 2, 2, 1, 1, 1], 6),
        ({"patience": 2, "mode": "max"}, [1, 2, 3, 3, 3], 5),
        # steps of 0.1 are no improvement each, but 0.3 over the best is one
        ({"patience": 3, "min_delta": 0.25}, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.45], 7),
        ({"patience": 3, "min_delta": 0.25}, [1.0, 0.9, 0.8, 0.75], 4),
        ({"patience": 2}, [1, NAN, NAN], 3),
        ({"patience": 3}, [NAN, NAN, 5, 6, 6, 6], 6),
        ({"patience": 2}, [NAN, NAN], 2),
    ],
)
def test_when_it_stops(config: dict[str, Any], values: list[float], stop_at: int) -> None:
    assert decisions(stopping(**config), values) == [epoch == stop_at for epoch in range(1, stop_at + 1)]


@settings(deadline=None)
@given(values_, st.integers(1, 6))
def test_it_stops_when_the_best_is_patience_evaluations_ago(values: list[float], patience: int) -> None:
    rule = stopping(patience=patience)
    for at, decision in enumerate(decisions(rule, values)):
        seen = [(value, index) for index, value in enumerate(values[: at + 1]) if not math.isnan(value)]
        since_best = at - min(seen, default=(0.0, -1))[1]
        assert decision == (since_best >= patience)


def test_an_evaluation_without_the_metric_does_not_count() -> None:
    rule = stopping(patience=1)
    assert [rule.observe({"val/accuracy": 1.0}, epoch=epoch) for epoch in range(1, 5)] == [False] * 4
    assert decisions(rule, [1.0, 1.0]) == [False, True]
    assert rule.observe({}, epoch=7)


@settings(deadline=None)
@given(values_, st.integers(0, 25), st.integers(1, 6))
def test_resumed_early_stopping_equals_an_uninterrupted_one(values: list[float], cut: int, patience: int) -> None:
    cut = min(cut, len(values))
    first, second, whole = (stopping(patience=patience) for _ in range(3))
    begun = decisions(first, values[:cut])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert begun + decisions(second, values[cut:], first=cut + 1) == decisions(whole, values)
    assert second.reason == whole.reason


@pytest.mark.parametrize("other", [{"monitor": "val/accuracy"}, {"mode": "max"}])
def test_the_state_of_another_metric_is_ignored(other: dict[str, str]) -> None:
    saved = stopping(patience=2, **other)
    for epoch in (1, 2):
        saved.observe({"val/accuracy": 0.1, "val/loss": 0.1}, epoch=epoch)
    rule = stopping(patience=2)
    rule.load_state_dict(saved.state_dict())
    assert decisions(rule, [9.0, 9.0, 9.0]) == [False, False, True]


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ({"patience": 3}, [1, 2]),
        ({"patience": 2}, [2, 0.123456, 2, 2]),
        ({"patience": 1, "min_delta": 0.01}, [2, 2]),
        ({"patience": 2}, [NAN, NAN]),
    ],
)
def test_the_reason_names_the_metric_and_the_best_value(
    config: dict[str, Any], values: list[float], approved: Approved
) -> None:
    rule = stopping(**config)
    decisions(rule, values)
    assert rule.reason == approved.of_row("reason")
