"""Curves are offered for numbers that a job prints again and again."""

from typing import Any

import pytest

from api.advice.judgement import judge
from store.output.facts import Batch
from tests.api.advice.facts import facts, log
from worker.attempts.output.logged import LoggedMetrics


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (["epoch=1 loss: 0.9", "epoch=2 loss: 0.8", "epoch=3 loss: 0.7"], "loss"),
        (["lr=0.1 val_acc=0.1", "lr=0.2 val_acc=0.2", "lr=0.3 val_acc=0.3"], "val_acc"),
        ([f"{n}%|██| {n}/9 [00:0{n}<00:01, 2.1it/s, loss=0.{n}]" for n in range(1, 5)], "loss"),
        (["loss=0.3 val_loss=9", "loss=0.2 val_loss=8", "loss=0.1 val_loss=7"], "loss"),
        (["train/loss=1", "train/loss=2", "train/loss=3"], "train/loss"),
        ([f"[\x1b[32mINFO\x1b[0m] - \x1b[1mval/acc\x1b[0m: \x1b[36m0.{n}\x1b[0m" for n in range(1, 4)], "val/acc"),
        ([f"iter_dt 26.{n}ms; iter {n}0: train loss 2.5{n}" for n in range(1, 4)], "loss"),
        ([f"| epoch   1 | {n}0/39 batches | ms/batch 52.1 | loss  6.{n} | ppl   90.{n}" for n in range(1, 4)], "loss"),
    ],
)
@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_numbers_that_are_printed_again_and_again_may_be_curves(lines: list[str], key: str, state: str) -> None:
    advice = judge(facts(state, trainer="script", lines=log(*lines, stream="stdout")))
    assert advice.metric_pattern == rf"\b{key}[ =:]+(?P<value>\S+)"
    stored = rf" `torchyard metrics job_1 --from-log '\b{key}[ =:]+(?P<value>\S+)'` makes one of what is stored."
    assert advice.steps[-1] == (
        f"This log has {key}=…, and no curves:"
        rf" `torchyard run --metric '\b{key}[ =:]+(?P<value>\S+)' PROGRAM` makes one of it."
    ) + (stored if state == "succeeded" else "")


def test_the_pattern_takes_the_step_that_each_line_says() -> None:
    lines = [f"epoch 1 | Step {n}0: lr=0.{n} loss=0.{n}" for n in range(1, 4)]
    pattern = judge(facts("succeeded", trainer="script", lines=log(*lines, stream="stdout"))).metric_pattern
    assert pattern is not None
    batch = Batch(offsets={})
    LoggedMetrics([pattern]).read([line.encode() for line in lines], batch, {})
    assert [(point.key, point.step, point.value) for point in batch.logged] == [
        ("loss", 10 * n, n / 10) for n in range(1, 4)
    ]


@pytest.mark.parametrize("value", ["-6.4{}", "'6.4{}'", '"6.4{}"'])
def test_a_curve_is_made_of_numbers_in_a_printed_dictionary(value: str) -> None:
    """The Trainer prints its numbers so."""
    lines = [f"{{'loss': {value.format(n)}, 'epoch': '0.{n}'}}" for n in range(1, 4)]
    pattern = judge(facts("succeeded", trainer="script", lines=log(*lines, stream="stdout"))).metric_pattern
    assert pattern is not None
    batch = Batch(offsets={})
    LoggedMetrics([pattern]).read([line.encode() for line in lines], batch, {})
    sign = -1 if value.startswith("-") else 1
    assert [(point.key, point.value) for point in batch.logged] == [
        ("loss", sign * float(f"6.4{n}")) for n in range(1, 4)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["loss=1", "loss=2"],
        ["loss=1"] * 5,
        [f"epoch={n}" for n in range(5)],
        [f"at 12:0{n}:00" for n in range(5)],
        [f"host:80{n}/x" for n in range(5)],
        ["nothing"],
        [f"saved checkpoint {n}" for n in range(5)],
    ],
)
def test_other_lines_are_no_curves(lines: list[str]) -> None:
    advice = judge(facts("succeeded", trainer="script", lines=log(*lines, stream="stdout")))
    assert advice.metric_pattern is None
    assert not any("--metric" in step for step in advice.steps)


def test_a_job_with_metrics_or_patterns_is_offered_none() -> None:
    lines = log(*(f"loss={n}" for n in range(5)), stream="stdout")
    spec = {"metrics": {"patterns": [r"x (?P<value>\S+)"]}}
    others: list[dict[str, Any]] = [{"metrics": {"loss": 1.0}}, {"spec": spec}, {"trainer": "segmentation"}]
    for more in others:
        given: dict[str, Any] = {"trainer": "script", **more}
        advice = judge(facts("succeeded", lines=lines, **given))
        assert not any("--metric" in step for step in advice.steps)
