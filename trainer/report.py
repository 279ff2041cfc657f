"""Reports a run to users: metrics, messages and its model card."""

from collections.abc import Mapping
from dataclasses import replace
import logging
import time
from typing import Any

import torch

from torchyard.contract.errors import NonFiniteLoss
from torchyard.contract.recipes import Recipe
from torchyard.contract.recipes.entry import DATA_WAIT
from torchyard.run import Run
from trainer.card import Card, peak_memory
from trainer.data.loading import WAITED
from trainer.window import LossWindow

logger = logging.getLogger(__name__)


class Report:
    """Every rank computes the same report; only rank 0's is written. `card`: what is known before training."""

    def __init__(self, run: Run, *, card: Card, window: LossWindow, device: torch.device) -> None:
        self.metrics: dict[str, float] = {}
        """The newest training metrics."""
        self.window = window
        self._run, self._card, self._device = run, card, device
        self._samples, self._seconds = 0, 0.0
        self._clock, self._waited = time.monotonic(), WAITED.seconds

    def introduce(self, description: str, *, config: Recipe, base_lr: float, total_steps: int) -> None:
        """Writes what is about to be trained."""
        card, optimizer = self._card, config.optimizer
        lines = [
            f"{description}; {card.parameters:,} parameters; {card.world_size} × {card.device}",
            f"{total_steps} steps with a global batch of {card.global_batch}: {card.world_size} × "
            f"{card.per_device_batch_size} × {card.gradient_accumulation_steps}, in {card.precision}",
        ]
        if optimizer.lr_scaling != "none":
            lines.append(f"learning rate {base_lr:.6g}: {optimizer.lr:g}, scaled ({optimizer.lr_scaling})")
        for line in lines:
            self.message(line)
        self._run.card(self.card.as_dict())

    def message(self, text: str) -> None:
        """Writes a message to the log and to the job's events."""
        logger.info(text)
        self._run.message(text)

    def warn(self, text: str) -> None:
        """Writes a warning to the job's events."""
        self._run.message(text, level="warning")

    def restart_clock(self) -> None:
        """Restarts the clocks of the speed and of the wait: training begins, or continues after an evaluation."""
        self._clock, self._waited = time.monotonic(), WAITED.seconds

    def log(self, step: int, *, lr: float) -> None:
        """Logs the means over the window of steps that ends at `step`. A collective.

        `time/data_wait` is the share of the window's time (0…1, the mean over the ranks) in which a rank waited for its
        data loader: 0 for data in memory. It is the host's time. A GPU may still compute meanwhile what the host has
        queued before, so it may idle for less than that.

        Raises NonFiniteLoss after the means are logged.
        """
        of_ranks = self.window.sync(step, own=[WAITED.seconds - self._waited])
        waited = sum(seconds for (seconds,) in of_ranks) / max(len(of_ranks), 1)
        now = time.monotonic()
        seconds = max(now - self._clock, 1e-9)
        self.metrics = {
            "train/loss": self.window.mean,
            **self.window.shares,
            "train/grad_norm": self.window.mean_norm,
            "train/lr": lr,
            "train/samples_per_second": self.window.samples / seconds,
        }
        self._run.log({**self.metrics, DATA_WAIT: min(waited / seconds, 1.0)}, step=step)
        if self.window.failure is not None:
            raise NonFiniteLoss(self.window.failure)
        self._samples += self.window.samples
        self._seconds += seconds
        self.window.reset()
        self._clock, self._waited = now, WAITED.seconds

    def raise_if_nonfinite(self, step: int) -> None:
        """Raises NonFiniteLoss if too many steps up to `step` in a row were not finite. A collective."""
        self.window.sync(step)
        if self.window.failure is not None:
            raise NonFiniteLoss(self.window.failure)

    def log_epoch(self, measured: Mapping[str, float], *, epoch: int, epochs: int, step: int) -> None:
        """Writes a line with the newest metrics to the log. `torchyard.cli.follow` knows it by its beginning."""
        shown = "  ".join(f"{key} {value:.4g}" for key, value in {**self.metrics, **measured}.items())
        logger.info("epoch %d/%d  step %d  %s", epoch, epochs, step, shown)

    def state_dict(self) -> dict[str, Any]:
        """Returns the newest training metrics, and what was measured since the last log line."""
        return {"metrics": self.metrics, "window": self.window.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state. Its `metrics` may hold those of an evaluation, too, which are left out."""
        self.metrics = {key: value for key, value in state["metrics"].items() if key.startswith("train/")}
        self.window.load_state_dict(state["window"])

    @property
    def card(self) -> Card:
        """The model card with speed and memory as measured so far."""
        speed = self._samples / self._seconds if self._seconds else None
        return replace(self._card, samples_per_second=speed, peak_memory_bytes=peak_memory(self._device))
