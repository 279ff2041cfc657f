"""Few and many micro-batches: what is compared, and what makes the curves equal."""

import json
from pathlib import Path

import pytest

from bench.accumulation import FEW, MANY, MOST_PPM, Curve, curve_of, distance, job, rows, write_texts
from torchyard.contract.attempts.events import Metric
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.spec.spec import parse_spec


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_both_have_the_same_global_batch(processes: int, tmp_path: Path) -> None:
    jobs = [job(str(tmp_path), window=window, processes=processes, seed=1) for window in (FEW, MANY)]
    sizes = [parse_spec(spec).config.training for spec in jobs]  # pyright: ignore[reportAttributeAccessIssue] a recipe
    batches = {size.per_device_batch_size * size.gradient_accumulation_steps for size in sizes}
    assert batches == {160}
    assert (FEW, MANY) == (2, 80)


def test_losses_are_compared_step_by_step_with_the_first_one_as_the_measure() -> None:
    assert distance(Curve([2.0, 0.5], 1), Curve([2.0, 0.5], 1)) == 0
    assert distance(Curve([2.0, 0.501], 1), Curve([2.0, 0.5], 1)) == pytest.approx(500)
    with pytest.raises(ValueError, match="argument"):
        distance(Curve([2.0], 1), Curve([2.0, 0.5], 1))


def test_curves_that_are_apart_miss_the_target() -> None:
    few = [Curve([2.0, 1.0], 100), Curve([2.0, 1.0], 120)]
    speed, near = rows(few, few, processes=2)
    assert (speed.ratio, near.met) == (1, True)
    far = [Curve([2.0, 1.0 + 3e-6 * MOST_PPM], 50), Curve([2.0, 1.0 + 3e-6 * MOST_PPM], 60)]
    speed, apart = rows(few, far, processes=2)
    assert (speed.ratio, apart.met) == (0.5, False)


def test_the_texts_are_the_same_each_time_and_half_of_each_class(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_texts(tmp_path / name, 10)
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    labels = [json.loads(line)["label"] for line in (tmp_path / "one").read_text().splitlines()]
    assert labels == 5 * ["0", "1"]


def test_a_curve_has_the_loss_of_every_step_and_the_speed_after_the_first_epoch(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.create()
    values = [{"train/loss": 3.0}, {"train/loss": 2.0, "train/samples_per_second": 1.0}]
    values += [{"train/loss": 1.0, "train/samples_per_second": 50.0}]
    lines = [Metric(time=step, step=step, values=found) for step, found in enumerate(values, start=1)]
    run.events.write_text("".join(f"{line.to_json()}\n" for line in lines))
    assert curve_of(run) == Curve([3.0, 2.0, 1.0], 50.0)
