"""The best evaluation of a run, early stopping where none is better, and the check for a stop inside an evaluation."""

from collections.abc import Callable, Mapping
import math
from typing import Any, Literal

from torchyard.contract.recipes import EarlyStoppingConfig
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.run import Run
from trainer.world import World

STOP_CHECK_BATCHES = 16
"""Batches of an evaluation between two checks for a stop request."""


def improves(value: float, best: float | None, *, mode: Literal["min", "max"], by_more_than: float = 0.0) -> bool:
    """Returns whether `value` is better than `best`; a `best` of None means no value so far. NaN is never better."""
    if math.isnan(value):
        return False
    if best is None:
        return True
    gain = best - value if mode == "min" else value - best
    return gain > by_more_than


class Best:
    """Keeps the best value of the monitored metric, with the epoch and the step at which it was measured."""

    def __init__(self, policy: CheckpointPolicy) -> None:
        self._policy = policy
        self._best: dict[str, Any] | None = None

    def observe(self, metrics: Mapping[str, float], *, epoch: int, step: int) -> None:
        """Takes note of the metrics of an epoch. NaN is never the best, and an equal value is not better."""
        value = metrics.get(self._policy.monitor)
        best = None if self._best is None else self._best["value"]
        if value is not None and improves(value, best, mode=self._policy.mode):
            self._best = {"metric": self._policy.monitor, "value": value, "epoch": epoch, "step": step}

    def state_dict(self) -> dict[str, Any] | None:
        """Returns `metric`, `value`, `epoch` and `step`; None if nothing was measured yet."""
        return self._best

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continues from a saved state."""
        self._best = state


class EarlyStopping:
    """Stops after `patience` evaluations in a row without an improvement by more than `min_delta`.

    All ranks must observe the same metrics, so that they stop together.
    """

    def __init__(self, config: EarlyStoppingConfig) -> None:
        self._config = config
        self._best: float | None = None
        self._best_epoch: int | None = None
        self._bad = 0
        """Evaluations in a row without an improvement."""

    def observe(self, metrics: Mapping[str, float], *, epoch: int) -> bool:
        """Returns whether to stop after this evaluation. An evaluation without the monitored metric does not count."""
        value = metrics.get(self._config.monitor)
        if value is None:
            return self.stopped
        if improves(value, self._best, mode=self._config.mode, by_more_than=self._config.min_delta):
            self._best, self._best_epoch, self._bad = value, epoch, 0
        else:
            self._bad += 1
        return self.stopped

    @property
    def stopped(self) -> bool:
        """Whether patience has run out."""
        return self._bad >= self._config.patience

    @property
    def reason(self) -> str:
        """Why the run stops, for users; empty while it continues."""
        if not self.stopped:
            return ""
        count = "1 evaluation" if self._bad == 1 else f"{self._bad} evaluations in a row"
        if self._best is None:
            return f"{self._config.monitor} was not a number in {count}"
        margin = f" by more than {self._config.min_delta:g}" if self._config.min_delta else ""
        best = f"its best was {self._best:.4g} in epoch {self._best_epoch}"
        return f"{self._config.monitor} did not improve{margin} in {count}: {best}"

    def state_dict(self) -> dict[str, Any]:
        """Returns plain numbers and strings."""
        return {
            "monitor": self._config.monitor,
            "mode": self._config.mode,
            "best": self._best,
            "best_epoch": self._best_epoch,
            "bad": self._bad,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a saved state; starts anew if it is of another metric or mode."""
        if (state["monitor"], state["mode"]) == (self._config.monitor, self._config.mode):
            self._best, self._best_epoch, self._bad = state["best"], state["best_epoch"], state["bad"]


class StopRequested(Exception):
    """Ends an evaluation, on all ranks at the same batch."""


class StopCheck:
    """Reports progress after each batch of an evaluation, and checks for a stop every STOP_CHECK_BATCHES batches.

    All ranks call it equally often. Raises StopRequested.
    """

    def __init__(self, run: Run, world: World, report_progress: Callable[[], None]) -> None:
        self._run, self._world, self._report_progress, self._calls = run, world, report_progress, 0

    def __call__(self) -> None:
        self._report_progress()
        self._calls += 1
        if self._calls % STOP_CHECK_BATCHES == 0 and self._world.any(self._run.stop_requested):
            raise StopRequested
