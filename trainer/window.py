"""Loss and gradient norm between two log lines: true means over all ranks, without a wait for the device each step."""

from dataclasses import dataclass, field
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.world import World

FOLD_STEPS = 64
"""Losses that wait as tensors of their own, at most."""


class Step(NamedTuple):
    """What one optimizer step measured, on its device."""

    loss: Tensor
    """This rank's part: the mean over the ranks is the loss."""
    grad_norm: Tensor
    """Of all gradients together, before they were clipped. Where the ranks did not meet, of this rank's own."""
    overflowed: bool = False
    """Whether the gradients overflowed in fp16, as the loss was scaled too much: that is no failure."""


@dataclass
class LossWindow:
    """Collects the loss and the gradients' norm of each step on their device.

    `sync` fetches them, as means over all ranks, and so every rank sees the same. After `max_nonfinite` steps in a row
    with a NaN or infinite loss or norm, `failure` says so.
    """

    world: World
    max_nonfinite: int
    failure: str | None = None
    _waiting: list[Step] = field(default_factory=list[Step])
    _folded: list[Tensor] = field(default_factory=list[Tensor])
    _samples: list[int] = field(default_factory=list[int])
    _overflowed: list[bool] = field(default_factory=list[bool])
    _total: float = 0.0
    _count: int = 0
    _norm_total: float = 0.0
    _norms: int = 0
    nonfinite: int = 0
    """Steps in a row, the last ones, whose loss or norm is not finite."""
    skipped: int = 0
    """Steps since the last `reset`, as far as they are fetched, whose loss or norm is not finite."""

    def add(self, step: Step, samples: int) -> None:
        """One step on this rank, and the samples of all ranks that it stands for."""
        self._waiting.append(step)
        self._samples.append(samples)
        self._overflowed.append(step.overflowed)
        if len(self._waiting) == FOLD_STEPS:
            self._fold()

    def sync(self, step: int) -> None:
        """Fetches what was added up to optimizer step `step`. A collective."""
        self._fold()
        if not self._folded:
            return
        losses, norms = self.world.sum(torch.cat(self._folded, dim=1)).div_(self.world.size).tolist()
        first = step - len(losses) + 1
        steps = zip(losses, norms, self._samples, self._overflowed, strict=True)
        for at, (loss, norm, samples, overflowed) in enumerate(steps, start=first):
            self._total += loss * samples
            self._count += samples
            if not overflowed:
                self._norm_total += norm
                self._norms += 1
            self._judge(at, loss, 0.0 if overflowed else norm)
        self._folded.clear()
        self._samples.clear()
        self._overflowed.clear()

    def _fold(self) -> None:
        if self._waiting:
            losses = torch.stack([step.loss.detach() for step in self._waiting]).double()
            norms = torch.stack([step.grad_norm.detach() for step in self._waiting]).double()
            self._folded.append(torch.stack([losses, norms]))
            self._waiting.clear()

    def _judge(self, at: int, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            self.nonfinite = 0
            return
        self.nonfinite += 1
        self.skipped += 1
        if self.failure is None and self.nonfinite >= self.max_nonfinite:
            what = f"the gradients' norm was {norm}" if math.isfinite(loss) else f"the loss was {loss}"
            self.failure = (
                f"{what} at step {at}, not finite for {self.nonfinite} steps in a row: a lower "
                "learning rate, warm-up or gradient clipping may help, unless the data itself holds NaN"
            )

    @property
    def mean(self) -> float:
        """The mean loss over all samples since the last `reset`, as far as they are fetched."""
        return self._total / self._count if self._count else float("nan")

    @property
    def mean_norm(self) -> float:
        """The mean norm of the steps since the last `reset`, as far as they are fetched, that did not overflow."""
        return self._norm_total / self._norms if self._norms else float("nan")

    @property
    def samples(self) -> int:
        return self._count

    def reset(self) -> None:
        self._total, self._count = 0.0, 0
        self._norm_total, self._norms = 0.0, 0
        self.skipped = 0

    def state_dict(self) -> dict[str, Any]:
        """After `sync`: the same on every rank."""
        return {
            "total": self._total,
            "count": self._count,
            "norm_total": self._norm_total,
            "norms": self._norms,
            "nonfinite": self.nonfinite,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A state of before there were norms has none."""
        self._total, self._count, self.nonfinite = state["total"], state["count"], state["nonfinite"]
        self._norm_total, self._norms = state.get("norm_total", 0.0), state.get("norms", 0)
        self.skipped = state.get("skipped", 0)
