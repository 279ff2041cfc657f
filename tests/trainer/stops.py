"""Draws trainings, stops and resumes them, and says where they end otherwise than an uninterrupted one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
import math
import pickle
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainer.ranks import on_ranks, recipe, results
from tests.trainer.regression import Regression
from torchyard.contract.recipes import ImageClassification
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.data.batch import Batch
from trainer.sampler import TrainSampler
from trainer.task import Evaluation
from trainer.train import Training
from trainer.world import World, joined

DEADLINE_S = 900
"""How long many draws in the same processes may take."""
TOLERANCE = 1e-7
"""Numbers are in float64. Ranks add up in another order than one process does. Of a bias before batch norm, whose
gradient is 0, AdamW divides the rounding by 1e-8."""
AS_ONE = ("plain", "counted", "synchronized", "fsdp")
"""Kinds of training whose result does not depend on the number of ranks."""
KINDS = (*AS_ONE[:2] * 3, *AS_ONE[2:], "dropout", "batch norm", "local sgd", "powersgd")
COUNTERS = ("step", "epoch", "end_of_epoch", "ended", "schedule", "early_stopping", "best", "window")
CURVES = ("train/loss", "train/lr", "train/grad_norm", "val/loss")


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One training, and how it is stopped."""

    kind: str
    size: int
    batch: int
    accumulate: int
    epochs: int
    ranks: int
    later: int
    """The ranks of the second attempt."""
    manner: str
    """`stop`: asked for; `pause`: by itself; `kill`: what was not saved is lost; `none`."""
    at: int
    """The step after which it stops."""
    saves_every: int | None
    logs_every: int
    spoilt: int | None
    """The sample that is NaN in the first epoch."""
    sections: Mapping[str, Any]

    @property
    def global_batch(self) -> int:
        return self.batch * self.accumulate * self.ranks

    @property
    def unbroken(self) -> "Draw":
        """The same on the same ranks, which nothing stops."""
        return replace(self, manner="none")

    @property
    def alone(self) -> "Draw":
        """The same in one process, which nothing stops."""
        kind = "plain" if self.kind == "fsdp" else self.kind
        return replace(self, kind=kind, manner="none", batch=self.global_batch, accumulate=1, ranks=1)

    def config(self) -> ImageClassification:
        strategies: dict[str, Any] = {
            "synchronized": {"sync_batchnorm": True},
            "fsdp": {"strategy": "fsdp"},
            "local sgd": {"strategy": "local_sgd", "local_sgd": {"period": 3, "warmup_steps": 1}},
            "powersgd": {"comm_hook": "powersgd"},
        }
        training = {
            "epochs": self.epochs,
            "per_device_batch_size": self.batch,
            "gradient_accumulation_steps": self.accumulate,
            "precision": "fp32",
        }
        return recipe(
            training=training,
            logging={"every_steps": self.logs_every},
            distributed=strategies.get(self.kind, {}),
            **self.sections,
        )


def draw(numbers: Random, *, most_ranks: int) -> Draw:
    """Draws a training that has two steps at least, on so many ranks at most."""
    kind = numbers.choice(KINDS)
    norms = kind in {"synchronized", "batch norm"}
    batch, ranks = numbers.randint(2 if norms else 1, 4), numbers.randint(1, most_ranks)
    accumulate = 1 if kind == "synchronized" else numbers.randint(1, 3)
    global_batch, epochs = batch * accumulate * ranks, numbers.randint(1, 3)
    size = numbers.randint(global_batch + 2, 3 * global_batch + 5)
    steps = epochs * TrainSampler(size, global_batch=global_batch, batch_size=batch, batch_norm=norms).count()
    fewest = {"plain": 1, "counted": 1, "fsdp": 1, "synchronized": ranks}.get(kind)
    return Draw(
        kind=kind,
        size=size,
        batch=batch,
        accumulate=accumulate,
        epochs=epochs,
        ranks=ranks,
        later=ranks if fewest is None else numbers.choice([ranks, numbers.randint(fewest, most_ranks)]),
        manner=numbers.choice(("stop", "pause", "kill")),
        at=numbers.randint(1, max(1, steps - 1)),
        saves_every=numbers.choice((None, 1, 2, 3)),
        logs_every=numbers.randint(1, 4),
        spoilt=numbers.choice((None, None, numbers.randrange(size))),
        sections=_sections(numbers, kind),
    )


def _sections(numbers: Random, kind: str) -> dict[str, Any]:
    optimizers: list[dict[str, Any]] = [
        {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        {"name": "adamw", "lr": 0.01, "fused": numbers.random() < 0.5 and kind != "fsdp"},
    ]
    lookahead = {"every_steps": numbers.randint(1, 3)} if numbers.random() < 0.3 else None
    clip = 0.5 if numbers.random() < 0.3 else None
    return {
        "optimizer": {**numbers.choice(optimizers), "lookahead": lookahead, "clip_grad_norm": clip},
        "lr_scheduler": {"name": numbers.choice(("constant", "cosine")), "warmup_steps": numbers.randint(0, 2)},
        "ema": {"decay": 0.8, "ramp": numbers.choice((0, 3))} if numbers.random() < 0.3 else None,
    }


class Sized(Regression):
    """A regression on as many samples as a draw has, whose evaluation depends on its weights."""

    def __init__(self, draw: Draw) -> None:
        extra: dict[str, type[nn.Module]] = {"synchronized": nn.BatchNorm1d, "batch norm": nn.BatchNorm1d}
        super().__init__(extra[draw.kind](5) if draw.kind in extra else nn.Dropout(0.5 * (draw.kind == "dropout")))
        numbers = torch.Generator().manual_seed(draw.size)
        self.samples = self.validation_samples = draw.size
        self.inputs = torch.randn(draw.size, 3, dtype=torch.float64, generator=numbers)
        self.targets = torch.randn(draw.size, 1, dtype=torch.float64, generator=numbers)
        self.counts = torch.arange(draw.size) * 7 % 5 + 1 if draw.kind == "counted" else None
        self._spoilt = draw.spoilt

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wanted, counts = targets.split(1, dim=1) if targets.shape[1] == 2 else (targets, torch.ones_like(targets))
        return (counts * (outputs - wanted).square()).sum() / counts.sum()

    def training_batches(self, plan: Sequence[Tensor], *, epoch: int) -> Iterator[Batch]:
        for rows in plan:
            inputs, targets = self.inputs[rows].clone(), self.targets[rows]
            if epoch == 1 and self._spoilt is not None:
                inputs[rows == self._spoilt] = math.nan
            if self.counts is not None:
                targets = torch.cat([targets, self.counts[rows, None]], dim=1)
            yield Batch(inputs, targets)

    def evaluate(self, world: World | None, *, on_batch: Any, batch_size: int | None = None) -> Evaluation:
        self.model.eval()
        with torch.no_grad():
            found = functional.mse_loss(self.model(self.inputs), self.targets).item()
        self.model.train()
        return Evaluation({"val/loss": found})


class Killed(Exception):
    """The end of an attempt that leaves what was saved before."""


class Stopped(Run):
    """A run that stops as a draw says, on all ranks after the same step, and keeps what it was told."""

    training: Training

    def __init__(self, draw: Draw) -> None:
        super().__init__({})
        self._draw = draw
        self.state: dict[str, Any] | None = None
        self.curves: dict[tuple[str, int], float] = {}

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        self.curves |= {(key, step): values[key] for key in CURVES if key in values}

    def should_stop(self) -> bool:
        if self._draw.manner == "kill" and self._reached:
            raise Killed
        return self._draw.manner == "stop" and self._reached

    def pauses_at(self, *, step: int, epochs: int) -> bool:
        return self._draw.manner == "pause" and self._reached

    def save_checkpoint(self, state: Mapping[str, Any], **named: Any) -> None:
        if self.training.world.rank == 0:
            self.state = deepcopy(dict(state))

    @property
    def _reached(self) -> bool:
        return self.training.position.step >= self._draw.at


Outcome = tuple[bytes | None, dict[tuple[str, int], float]]
"""The newest checkpoint of an attempt, pickled by value, as ranks would share the memory of tensors; its curves."""


def attempts(work: Sequence[tuple[Draw, bytes | None]]) -> list[Outcome]:
    """Trains each draw from a state on the ranks of this group. Returns what rank 0 has of each."""
    with joined(timedelta(seconds=DEADLINE_S)) as world:
        return [_attempt(draw, state, world) for draw, state in work]


def _attempt(draw: Draw, state: bytes | None, world: World) -> Outcome:
    run = Stopped(draw)
    run.training = Training(
        Sized(draw),
        trainer="test",
        config=draw.config(),
        policy=CheckpointPolicy(every_steps=draw.saves_every),
        run=run,
        world=world,
        state=None if state is None else pickle.loads(state),
    )
    with suppress(Killed):
        run.training.train()
    return None if run.state is None else pickle.dumps(run.state), run.curves


def differences(draws: Sequence[Draw]) -> list[str]:
    """Returns what is different in the end from the same draws unbroken, on the same ranks and in one process."""
    same = [at for at, draw in enumerate(draws) if draw.later == draw.ranks]
    one = [at for at, draw in enumerate(draws) if draw.kind in AS_ONE]
    first = _on_ranks(
        [
            *((draw.ranks, draw, None) for draw in draws),
            *((draws[at].ranks, draws[at].unbroken, None) for at in same),
            *((1, draws[at].alone, None) for at in one),
        ]
    )
    begun, references = first[: len(draws)], first[len(draws) :]
    # Where nothing was saved, the next attempt begins anew: on other ranks its steps would be others.
    ended = _on_ranks(
        [
            (draw.later if state else draw.ranks, draw.unbroken, state)
            for draw, (state, _) in zip(draws, begun, strict=True)
        ]
    )
    found: list[str] = []
    for at, reference, within in zip(
        [*same, *one], references, [0.0] * len(same) + [TOLERANCE] * len(one), strict=True
    ):
        # Nothing is saved anew where the last step was saved before the stop.
        resumed = ended[at][0] or begun[at][0], begun[at][1] | ended[at][1]
        found += [f"{what}: {draws[at]}" for what in islice(_differing(resumed, reference, within=within), 2)]
    return found


def _on_ranks(work: Sequence[tuple[int, Draw, bytes | None]]) -> list[Outcome]:
    """Runs each attempt on its number of ranks: all with as many ranks in the same processes."""
    outcomes: dict[int, Outcome] = {}
    for size in sorted({ranks for ranks, _, _ in work}):
        places = [at for at, (ranks, _, _) in enumerate(work) if ranks == size]
        found = results(on_ranks(size, attempts, [work[at][1:] for at in places], deadline_s=DEADLINE_S))[0]
        outcomes |= dict(zip(places, found, strict=True))
    return [outcomes[at] for at in range(len(work))]


def _differing(ours: Outcome, theirs: Outcome, *, within: float) -> Iterator[str]:
    (saved, curves), (reference, course) = ours, theirs
    assert saved is not None
    assert reference is not None
    state, expected = pickle.loads(saved), pickle.loads(reference)
    for key in ("model", "raw", "slow", "optimizer"):
        yield from _unequal(key, state[key], expected[key], within)
    for key in COUNTERS:
        yield from _unequal(key, state[key], expected[key], within)
    yield from _unequal("samples", state["sampler"]["samples"], expected["sampler"]["samples"], 0.0)
    for point, value in course.items():
        yield from _unequal(" ".join(map(str, point)), curves.get(point), value, within)


def _unequal(name: str, one: Any, other: Any, within: float) -> Iterator[str]:
    if isinstance(other, Mapping):
        if not isinstance(one, Mapping) or one.keys() != other.keys():
            yield f"{name} has {one} and not {other}"
            return
        for key in other:
            yield from _unequal(f"{name}.{key}", one[key], other[key], within)
    elif isinstance(other, list):
        for at, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _unequal(f"{name}.{at}", a, b, within)
    elif isinstance(other, Tensor | float):
        a, b = (torch.as_tensor(value, dtype=torch.float64) for value in (one if one is not None else math.inf, other))
        if not torch.allclose(a, b, rtol=within, atol=within, equal_nan=True):
            yield f"{name} is {one} and not {other}"
    elif one != other:
        yield f"{name} is {one} and not {other}"
