"""The learning rate of each optimizer step."""

import math
from typing import Any, Literal

from torch.optim import Optimizer

from torchyard.contract.recipes import SchedulerConfig
from trainer.stopping import improves


class Schedule:
    """The learning rate as a function of the step and the epochs and, with `plateau`, of the metrics so far.

    `base_lr` is the rate after the warm-up, `total_steps` the optimizer steps of the whole run, `steps_per_epoch` those
    of a whole epoch, and `mode` says which values of the monitored metric are better. Every rank observes the same
    values, and so computes the same rate.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        base_lr: float,
        total_steps: int,
        steps_per_epoch: int,
        mode: Literal["min", "max"],
    ) -> None:
        self._config, self._base_lr, self._steps_per_epoch = config, base_lr, steps_per_epoch
        self.total_steps = total_steps
        """Optimizer steps of the whole run, over which `cosine` falls."""
        self._mode: Literal["min", "max"] = mode
        self._best: float | None = None
        self._bad = 0
        """Evaluations in a row that were not better than the best."""
        self._drops = 0
        """How often `plateau` has multiplied the rate by gamma."""

    @property
    def warmup(self) -> int:
        """The optimizer steps of the warm-up. `warmup_epochs` are rounded to whole steps, but to one at least."""
        if not self._config.warmup_epochs:
            return self._config.warmup_steps
        return max(round(self._config.warmup_epochs * self._steps_per_epoch), 1)

    def lr(self, step: int, *, epochs: float) -> float:
        """Returns the learning rate of optimizer step `step`, which counts from 1. Skipped steps count, too.

        `epochs`: the epochs that are done when the step begins, with the part of the current one. The warm-up rises
        from base_lr / warm-up steps to base_lr. `step` drops at the first step that begins `step_epochs` after the
        last drop. Cosine falls over the steps after the warm-up, and would reach min_lr one step after the last.
        """
        if step <= self.warmup:
            return self._base_lr * step / self.warmup
        match self._config.name:
            case "constant":
                return self._base_lr
            case "step":
                return self._base_lr * self._config.gamma ** _drops(epochs, every=self._config.step_epochs)
            case "cosine":
                return self._cosine(step)
            case "plateau":
                return self._plateau()

    def observe(self, value: float | None, *, step: int) -> None:
        """Observes the monitored metric after optimizer step `step`; None: it was not measured.

        With `plateau`, more than `patience` evaluations in a row without a better value multiply the rate by gamma.
        Evaluations within the warm-up do not count, but later values must be better than the best of them. NaN is never
        better.
        """
        if self._config.name != "plateau" or value is None:
            return
        if improves(value, self._best, mode=self._mode):
            self._best, self._bad = value, 0
        elif step > self.warmup:
            self._bad += 1
        if self._bad > self._config.patience:
            self._drops, self._bad = self._drops + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Returns plain numbers. Only `plateau` changes them."""
        return {
            "best": self._best,
            "bad": self._bad,
            "drops": self._drops,
            "steps_per_epoch": self._steps_per_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a saved state. The warm-up keeps its steps, whatever the number of ranks."""
        self._best, self._bad, self._drops = state["best"], state["bad"], state["drops"]
        self._steps_per_epoch = state.get("steps_per_epoch", self._steps_per_epoch)

    def _cosine(self, step: int) -> float:
        warmup, low = self.warmup, self._config.min_lr
        done = min((step - 1 - warmup) / max(self.total_steps - warmup, 1), 1.0)
        return low + (self._base_lr - low) * (1 + math.cos(math.pi * done)) / 2

    def _plateau(self) -> float:
        low = min(self._config.min_lr, self._base_lr)  # a drop never raises the rate
        return max(self._base_lr * self._config.gamma**self._drops, low)


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Sets the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def _drops(epochs: float, *, every: float) -> int:
    """Returns how often `every` is in `epochs`. A billionth is added, as 7.2 / 2.4 may be computed as 2.999…"""
    return int(epochs / every + 1e-9)
