"""Loss, gradient norm and score over all ranks between two log lines, without waiting for the device each step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchyard.run.accelerator import is_accelerator, record_events
from trainer.data.loading import to_device
from trainer.score import Score
from trainer.world import World

STACK_STEPS = 64
"""Losses that are kept as separate tensors, at most; more are stacked."""
_ROWS = 3  # of what is stacked: losses, norms and scales


class Step(NamedTuple):
    """The loss and the gradient norm of one optimizer step, as tensors on its device."""

    loss: Tensor
    """This rank's part: the mean over all ranks is the loss."""
    grad_norm: Tensor
    """The norm of all gradients before clipping; of this rank's gradients if they were not all-reduced."""
    scale: Tensor | None = None
    """The scale of the loss, if it may be above 1. Gradients that overflow only because of it are not a failure."""


@dataclass
class _Sums:
    """Sums over the counted steps since the last `reset`."""

    losses: float = 0.0
    """Each loss times what its samples count in it."""
    counted: int = 0
    """What all samples count in the loss."""
    samples: int = 0
    norms: float = 0.0
    normed: int = 0
    """The steps whose norms were added: those that did not overflow."""
    taken: int = 0
    """The steps that were not skipped."""
    right: float = 0.0
    scored: float = 0.0
    """What was right by the score, and of how much, in the steps that were not skipped."""


@dataclass(frozen=True)
class _Copy:
    """Sums over all ranks on their way to the host."""

    last: int
    """The step of the last loss."""
    samples: list[int]
    totals: list[int]
    own: int
    """How many numbers each rank has of its own."""
    numbers: Tensor
    events: list[torch.Event]
    """They are done when `numbers` are there."""


@dataclass
class StepMetrics:
    """Collects the loss and the gradient norm of each step on their device, beside the score that a task counts.

    `begin` and `end` copy their means over all ranks to the host, so that every rank sees the same. After
    `max_nonfinite` steps in a row with a NaN or infinite loss or norm, `failure` says so.
    """

    world: World
    max_nonfinite: int
    score: Score | None = None
    failure: str | None = None
    _waiting: list[Step] = field(default_factory=list[Step])
    _stacked: list[Tensor] = field(default_factory=list[Tensor])
    _samples: list[int] = field(default_factory=list[int])
    _totals: list[int] = field(default_factory=list[int])
    _sums: _Sums = field(default_factory=_Sums)
    _copy: _Copy | None = None
    nonfinite: int = 0
    """The last steps in a row whose loss or norm is not finite."""

    def add(self, step: Step, *, samples: int, total: int) -> None:
        """Adds one step of this rank. `samples`: those of all ranks; `total`: what these count in the loss."""
        self._waiting.append(step)
        self._samples.append(samples)
        self._totals.append(total)
        if len(self._waiting) == STACK_STEPS:
            self._stack()

    def begin(self, step: int, *, own: Sequence[float] = ()) -> None:
        """Begins to copy to the host what was added up to optimizer step `step`. A collective. Does not wait.

        `own`: numbers of this rank, which go with it.
        """
        self._stack()
        if not self._stacked:
            return
        numbers = self._reduced(own)
        on_device = is_accelerator(numbers.device)
        host = torch.empty_like(numbers, device="cpu", pin_memory=on_device).copy_(numbers, non_blocking=on_device)
        events = record_events([numbers.device])
        self._copy = _Copy(step, self._samples, self._totals, len(own), host, events)
        self._stacked, self._samples, self._totals = [], [], []

    @property
    def arrived(self) -> bool:
        """Whether `end` would not wait."""
        return self._copy is None or all(event.query() for event in self._copy.events)

    def end(self) -> list[list[float]]:
        """Waits for what `begin` copies, and counts it.

        Returns the numbers in `own` of each rank, in the order of ranks; no ranks if nothing was added.
        """
        copied, self._copy = self._copy, None
        if copied is None:
            return []
        for event in copied.events:
            event.synchronize()
        numbers, count, size = copied.numbers.tolist(), len(copied.samples), self.world.size
        rows = [[total / size for total in numbers[row * count : (row + 1) * count]] for row in range(_ROWS)]
        self._count(*rows, totals=copied.totals, last=copied.last)
        self._sums.samples += sum(copied.samples)
        right, scored, *of_ranks = numbers[_ROWS * count :]
        self._sums.right += right
        self._sums.scored += scored
        return [of_ranks[rank * copied.own : (rank + 1) * copied.own] for rank in range(size)]

    def sync(self, step: int) -> None:
        """Copies to the host what was added up to optimizer step `step`, and waits for it. A collective."""
        self.begin(step)
        self.end()

    def _stack(self) -> None:
        if self._waiting:
            losses = torch.stack([step.loss.detach() for step in self._waiting]).double()
            norms = torch.stack([step.grad_norm.detach() for step in self._waiting]).double()
            scales = [step.scale for step in self._waiting if step.scale is not None]
            known = torch.stack(scales).double() if scales else torch.ones_like(losses)
            self._stacked.append(torch.stack([losses, norms, known]))
            self._waiting.clear()

    def _reduced(self, own: Sequence[float]) -> Tensor:
        """Returns sums over all ranks in one tensor: losses, norms, scales, the score's two, each rank's `own`."""
        steps = torch.cat(self._stacked, dim=1).flatten()
        score = steps.new_zeros(2) if self.score is None else self.score.take()
        of_ranks = [0.0] * (len(own) * self.world.size)
        of_ranks[self.world.rank * len(own) : (self.world.rank + 1) * len(own)] = own
        ranks = to_device(torch.tensor(of_ranks, dtype=steps.dtype), steps.device)
        return self.world.sum(torch.cat([steps, score, ranks]))

    def _count(
        self, losses: list[float], norms: list[float], scales: list[float], *, totals: list[int], last: int
    ) -> None:
        """Adds steps up to step `last` to the sums."""
        steps = zip(losses, norms, scales, totals, strict=True)
        sums = self._sums
        for at, (loss, norm, scale, total) in enumerate(steps, start=last - len(losses) + 1):
            overflowed = scale > 1 and not math.isfinite(norm)
            if math.isfinite(loss):  # a skipped step leaves the mean alone
                sums.losses += loss * total
                sums.counted += total
            sums.taken += math.isfinite(norm)
            if not overflowed:
                sums.norms += norm
                sums.normed += 1
            self._count_nonfinite(at, loss, 0.0 if overflowed else norm)

    def _count_nonfinite(self, at: int, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            self.nonfinite = 0
            return
        self.nonfinite += 1
        if self.failure is None and self.nonfinite >= self.max_nonfinite:
            what = f"the gradient norm was {norm}" if math.isfinite(loss) else f"the loss was {loss}"
            self.failure = (
                f"{what} at step {at}: not finite for {self.nonfinite} steps in a row. "
                "A lower learning rate, warm-up or gradient clipping may help, unless the data itself holds NaN"
            )

    @property
    def mean(self) -> float:
        """The mean loss over what the samples of the steps since the last `reset` count, where it is finite."""
        return self._sums.losses / self._sums.counted if self._sums.counted else float("nan")

    @property
    def mean_norm(self) -> float:
        """The mean norm of the counted steps since the last `reset` that did not overflow."""
        return self._sums.norms / self._sums.normed if self._sums.normed else float("nan")

    @property
    def shares(self) -> dict[str, float]:
        """The score of the steps since the last `reset` that were taken, by its name, if there is one."""
        sums = self._sums
        of_nothing = 1.0 if sums.taken else math.nan
        return {} if self.score is None else {self.score.name: sums.right / sums.scored if sums.scored else of_nothing}

    @property
    def samples(self) -> int:
        """Samples of the counted steps since the last `reset`."""
        return self._sums.samples

    def reset(self) -> None:
        """Starts new means."""
        self._sums = _Sums()

    def state_dict(self) -> dict[str, Any]:
        """Returns plain numbers, the same on every rank. Call `sync` before."""
        return {
            "total": self._sums.losses,
            "counted": self._sums.counted,
            "count": self._sums.samples,
            "norm_total": self._sums.norms,
            "norms": self._sums.normed,
            "nonfinite": self.nonfinite,
            "taken": self._sums.taken,
            "right": self._sums.right,
            "scored": self._sums.scored,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a saved state."""
        self.nonfinite = state["nonfinite"]
        self._sums = _Sums(
            losses=state["total"],
            counted=state.get("counted", state["count"]),  # older checkpoints are of recipes in which a sample counts 1
            samples=state["count"],
            norms=state["norm_total"],
            normed=state["norms"],
            taken=state.get("taken", state["norms"]),
            right=state["right"],
            scored=state["scored"],
        )
