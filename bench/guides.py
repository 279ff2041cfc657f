"""`python -m bench.guides` repeats on this machine the comparisons of guides to training on several GPUs.

It compares one process, DataParallel, DDP, and DDP with gradient accumulation, with the same data, model, global batch
and epochs. A script trains with DataParallel, the trainer itself all else. Each way trains with several seeds, in
turns with the others. Ways end equal if their final metrics differ by no more than seeds do. Last it compares the loss
curves of 2 and of 80 micro-batches a step.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
import math
from operator import attrgetter
from pathlib import Path
from statistics import mean, median, variance
import sys
from typing import Any

from bench import accumulation, table
from bench.service import scratch
from bench.table import Row
from bench.torchrun import clean_up_on_sigterm
from bench.training import TRAINER, train
from torchyard.contract.attempts.events import Metric, parse_line
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.spec import parse_spec

METRICS = {"image-classification": "val/accuracy", "segmentation": "val/iou", "text-classification": "val/accuracy"}
DEVIATIONS = 3
"""Medians of a metric are equal if they differ by at most this many standard deviations between seeds."""
NOTHING = 0.5
"""A difference of at most this many percent is never significant."""
_SPEED = "train/samples_per_second"
_DATA_PARALLEL = ("-m", "bench.peers.data_parallel")


@dataclass(frozen=True)
class Comparison:
    """What all ways of training share."""

    recipe: str
    source: str
    """`digits` or a path."""
    model: str | None
    image_size: int | None
    global_batch: int
    epochs: int

    @property
    def metric(self) -> str:
        """The metric that is compared."""
        return METRICS[self.recipe]

    def job(self, way: "Way", *, seed: int) -> dict[str, Any]:
        """Returns the spec of one training. It logs once an epoch, and saves only at the end."""
        sizes = {"per_device_batch_size": way.batch, "gradient_accumulation_steps": way.window}
        data = {"source": self.source if self.source == "digits" else Path(self.source).as_uri()}
        return {
            "trainer": self.recipe,
            "config": {
                "model": {"name": self.model} if self.model else {},
                "data": {**data, **({} if self.image_size is None else {"image_size": self.image_size})},
                "training": {"epochs": self.epochs, "seed": seed, **sizes},
                "logging": {"every_steps": 2**31 - 1},
            },
            "checkpoint": {"every_epochs": None},
        }


@dataclass(frozen=True)
class Way:
    """One way to train: processes (or GPUs of one process), samples a micro-batch, micro-batches a step."""

    name: str
    processes: int
    batch: int
    window: int = 1
    data_parallel: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of one training. Speed and epoch time are without the first epoch, which warms up."""

    speed: float
    """Samples a second, without evaluations."""
    epoch_s: float
    """Seconds from the end of one evaluation to the end of the next."""
    final: float
    """The metric after the last epoch, in percent."""


def main() -> None:
    """Prints a table of the ways to train."""
    parser = argparse.ArgumentParser(description="Compare ways to train on several devices.")
    parser.add_argument("--recipe", choices=METRICS, default="image-classification")
    parser.add_argument("--data", type=Path, metavar="PATH", help="the recipe's data source; default: digits")
    parser.add_argument("--model", metavar="NAME", help="default: the recipe's")
    parser.add_argument("--image-size", type=int, metavar="PIXELS", help="default: 16 for digits, else the recipe's")
    parser.add_argument("--global-batch", type=int, default=128, metavar="SAMPLES", help="samples of an optimizer step")
    parser.add_argument("--epochs", type=int, default=8, metavar="N")
    parser.add_argument("--processes", type=int, metavar="N", help="default: one a GPU, or 2 without a GPU")
    parser.add_argument(
        "--windows", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N", help="micro-batches a step"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="trainings of each way, each with another seed"
    )
    options = parser.parse_args()
    gpus = _gpus()
    processes = (gpus or 2) if options.processes is None else options.processes
    _check(options, processes=processes, gpus=gpus)
    comparison = Comparison(
        recipe=options.recipe,
        source="digits" if options.data is None else str(options.data.resolve()),
        model=options.model,
        image_size=16 if options.data is None and options.image_size is None else options.image_size,
        global_batch=options.global_batch,
        epochs=options.epochs,
    )
    ways = ways_of(options.global_batch, processes=processes, windows=options.windows, gpus=gpus)
    _validate(comparison, ways)
    for line in left_out(processes=processes, gpus=gpus):
        print(line, flush=True)
    clean_up_on_sigterm()
    table.main(partial(_measure_all, comparison, ways, processes=processes, repeats=options.repeats))


def ways_of(global_batch: int, *, processes: int, windows: Sequence[int], gpus: int) -> list[Way]:
    """Returns the ways to compare. The others are compared with the first one."""
    one = Way(f"one process, batches of {global_batch}", 1, global_batch)
    several = Way(f"DataParallel, {gpus} GPUs", gpus, global_batch, data_parallel=True)
    ddp = [
        Way(f"DDP, {processes} × {batch}" + (f", windows of {window}" if window > 1 else ""), processes, batch, window)
        for window in windows
        if (processes, window) != (1, 1)
        for batch in [global_batch // processes // window]
    ]
    return [one, *([several] if gpus > 1 else []), *ddp]


def left_out(*, processes: int, gpus: int) -> Iterator[str]:
    """Yields what this machine cannot compare, and why."""
    if gpus <= 1:
        yield f"Left out: DataParallel, which splits batches among the GPUs of one process; here are {gpus}."
    if processes == 1:
        yield "Left out: DDP over several processes, as there is one; windows are of one process."
    if not gpus:
        yield "Without a GPU, one process has the cores that several share: speeds here say nothing about GPUs."


def measure(comparison: Comparison, ways: Sequence[Way], *, repeats: int) -> Iterator[Row]:
    """Trains each way with each seed, and yields the rows of the table."""
    outcomes: dict[str, list[Outcome]] = {way.name: [] for way in ways}
    for seed in range(42, 42 + repeats):
        for way in ways:
            outcomes[way.name].append(_train(comparison, way, seed=seed))
    yield from rows(outcomes, comparison.metric)


def rows(outcomes: Mapping[str, Sequence[Outcome]], metric: str) -> Iterator[Row]:
    """Yields the rows of each way beside the first one. Final metrics should be equal within the noise of the seeds."""
    first, base = next(iter(outcomes.items()))
    middle, tolerance = median(outcome.final for outcome in base), noise(list(outcomes.values()))
    for name, found in outcomes.items():
        for what, unit, value in (
            (name, "samples/s", attrgetter("speed")),
            ("– an epoch", "s", attrgetter("epoch_s")),
            (f"– {metric} at the end", "%", attrgetter("final")),
        ):
            row = Row(what, unit, [value(outcome) for outcome in found])
            if name != first:
                row = replace(row, peer=first, theirs=[value(outcome) for outcome in base])
                if unit == "%" and tolerance is not None:
                    row = replace(row, at_least=round(middle - tolerance, 1), at_most=round(middle + tolerance, 1))
            yield row


def noise(outcomes: Sequence[Sequence[Outcome]]) -> float | None:
    """Returns how far apart two equal medians of a metric may be, in percent; None without repeats."""
    if min(len(found) for found in outcomes) < 2:
        return None
    pooled = mean(variance(outcome.final for outcome in found) for found in outcomes)
    return max(DEVIATIONS * math.sqrt(pooled), NOTHING)


def _measure_all(comparison: Comparison, ways: Sequence[Way], *, processes: int, repeats: int) -> Iterator[Row]:
    yield from measure(comparison, ways, repeats=repeats)
    yield from accumulation.measure(processes=processes, repeats=repeats)


def _check(options: argparse.Namespace, *, processes: int, gpus: int) -> None:
    """Exits with a message if the options cannot work."""
    if options.data is None and options.recipe != "image-classification":
        sys.exit(f"{options.recipe} needs --data: digits are for image-classification alone")
    if options.data is not None and not options.data.exists():
        sys.exit(f"there is no {options.data}")
    if options.epochs < 2:
        sys.exit("--epochs must be at least 2, as the first one warms up and is not timed")
    if min(options.repeats, processes, *options.windows) < 1:
        sys.exit("--repeats, --processes and --windows must be at least 1")
    if gpus and processes > gpus:
        sys.exit(f"--processes may be {gpus} here, one a GPU, and not {processes}")
    parts = math.lcm(*(processes * window for window in options.windows))
    if options.global_batch < 2 * processes * max(options.windows) or options.global_batch % parts:
        sys.exit(
            f"--global-batch {options.global_batch} cannot be dealt to {processes} processes in windows of "
            f"{options.windows}: take a multiple of {2 * parts}"
        )


def _validate(comparison: Comparison, ways: Sequence[Way]) -> None:
    """Exits with a message if the trainer refuses such a job."""
    try:
        for way in ways:
            parse_spec(comparison.job(way, seed=0))
    except InvalidSpec as error:
        sys.exit("; ".join(f"{item.field}: {item.message}" for item in error.errors))


def _train(comparison: Comparison, way: Way, *, seed: int) -> Outcome:
    with scratch() as folder:
        program, processes = (_DATA_PARALLEL, 1) if way.data_parallel else (TRAINER, way.processes)
        job, source = comparison.job(way, seed=seed), comparison.source
        run = train(job, name=way.name, folder=folder, source=source, processes=processes, program=program)
        outcome = outcome_of(run, comparison.metric)
    print(f"{way.name}, seed {seed}: {outcome}", file=sys.stderr, flush=True)
    return outcome


def outcome_of(run: RunDir, metric: str) -> Outcome:
    """Reads the outcome from the speeds and the evaluations that a run logged."""
    lines = [parse_line(line) for line in run.events.read_bytes().splitlines()]
    logged = [line for line in lines if isinstance(line, Metric)]
    speeds = [line.values[_SPEED] for line in logged if _SPEED in line.values]
    evaluated = [line for line in logged if metric in line.values]
    seconds = [(after.time - before.time) / 1e6 for before, after in pairwise(evaluated)]
    return Outcome(median(speeds[1:]), median(seconds), 100 * evaluated[-1].values[metric])


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


if __name__ == "__main__":
    main()
