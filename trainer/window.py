"""The training loss between two log lines: true means over all ranks, without waiting for the device at each step."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainer.world import World

FOLD_STEPS = 64
"""Losses that wait as tensors of their own, at most."""


@dataclass
class LossWindow:
    """Collects the loss of each step on its device.

    `sync` fetches them, as means over all ranks, and so every rank sees the same. After `max_nonfinite` steps in a row
    with a NaN or infinite loss, `failure` says so.
    """

    world: World
    max_nonfinite: int
    failure: str | None = None
    _waiting: list[Tensor] = field(default_factory=list[Tensor])
    _folded: list[Tensor] = field(default_factory=list[Tensor])
    _samples: list[int] = field(default_factory=list[int])
    _total: float = 0.0
    _count: int = 0
    nonfinite: int = 0
    """Steps in a row, the last ones, whose loss is not finite."""

    def add(self, loss: Tensor, samples: int) -> None:
        """The mean loss of one step on this rank, and the samples of all ranks that it stands for."""
        self._waiting.append(loss.detach())
        self._samples.append(samples)
        if len(self._waiting) == FOLD_STEPS:
            self._fold()

    def sync(self, step: int) -> None:
        """Fetches what was added up to optimizer step `step`. A collective."""
        self._fold()
        if not self._folded:
            return
        losses = self.world.sum(torch.cat(self._folded)).div_(self.world.size).tolist()
        first = step - len(losses) + 1
        for at, (loss, samples) in enumerate(zip(losses, self._samples, strict=True), start=first):
            self._total += loss * samples
            self._count += samples
            self.nonfinite = 0 if _is_finite(loss) else self.nonfinite + 1
            if self.failure is None and self.nonfinite >= self.max_nonfinite:
                self.failure = (
                    f"the loss was {loss} at step {at}, not finite for {self.nonfinite} steps in a row: a lower "
                    "learning rate, warm-up or gradient clipping may help, unless the data itself holds NaN"
                )
        self._folded.clear()
        self._samples.clear()

    def _fold(self) -> None:
        if self._waiting:
            self._folded.append(torch.stack(self._waiting).double())
            self._waiting.clear()

    @property
    def mean(self) -> float:
        """The mean over all samples since the last `reset`, as far as they are fetched."""
        return self._total / self._count if self._count else float("nan")

    @property
    def samples(self) -> int:
        return self._count

    def reset(self) -> None:
        self._total, self._count = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        """After `sync`: the same on every rank."""
        return {"total": self._total, "count": self._count, "nonfinite": self.nonfinite}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._total, self._count, self.nonfinite = state["total"], state["count"], state["nonfinite"]


def _is_finite(value: float) -> bool:
    return value - value == 0
