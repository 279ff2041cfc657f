"""When a metric has stopped getting better, and when to give up on it."""

from collections.abc import Mapping
import math
from typing import Any, Literal

from torchyard.contract.recipes import EarlyStoppingConfig


def improves(value: float, best: float | None, *, mode: Literal["min", "max"], by_more_than: float = 0.0) -> bool:
    """Whether `value` is better than `best`; None: there was none so far. NaN never is."""
    if math.isnan(value):
        return False
    if best is None:
        return True
    gain = best - value if mode == "min" else value - best
    return gain > by_more_than


class EarlyStopping:
    """Says when to stop: after `patience` evaluations in a row without an improvement by more than `min_delta`.

    It decides by what it is shown alone. One rank's decision is to hold for all.
    """

    def __init__(self, config: EarlyStoppingConfig) -> None:
        self._config = config
        self._best: float | None = None
        self._best_epoch: int | None = None
        self._bad = 0
        """Evaluations in a row without an improvement."""

    def observe(self, metrics: Mapping[str, float], *, epoch: int) -> bool:
        """Whether to stop after this evaluation. One that did not measure the monitored metric does not count."""
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
        return self._bad >= self._config.patience

    @property
    def reason(self) -> str:
        """A sentence for people; empty as long as training is to go on."""
        if not self.stopped:
            return ""
        count = "1 evaluation" if self._bad == 1 else f"{self._bad} evaluations in a row"
        if self._best is None:
            return f"{self._config.monitor} was not a number in {count}"
        margin = f" by more than {self._config.min_delta:g}" if self._config.min_delta else ""
        best = f"its best was {self._best:.4g} in epoch {self._best_epoch}"
        return f"{self._config.monitor} did not improve{margin} in {count}: {best}"

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "monitor": self._config.monitor,
            "mode": self._config.mode,
            "best": self._best,
            "best_epoch": self._best_epoch,
            "bad": self._bad,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state; from the beginning where that is of another metric or mode."""
        if (state["monitor"], state["mode"]) == (self._config.monitor, self._config.mode):
            self._best, self._best_epoch, self._bad = state["best"], state["best_epoch"], state["bad"]
