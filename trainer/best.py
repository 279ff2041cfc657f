"""The best evaluation of a run so far."""

from collections.abc import Mapping
from typing import Any

from torchyard.contract.spec import CheckpointPolicy
from trainer.stopping import improves


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
