"""What people see of a run: progress, metrics, messages and its model card."""

from collections.abc import Mapping
from dataclasses import replace
import logging
import time

import torch

from torchyard.contract.errors import NonFiniteLoss
from torchyard.contract.recipes import Recipe
from torchyard.run import Run
from trainer.card import Card, peak_memory
from trainer.window import LossWindow

logger = logging.getLogger(__name__)


class Report:
    """Every rank has one and computes the same; rank 0's is what people get. `card`: what is known before training."""

    def __init__(self, run: Run, *, card: Card, window: LossWindow, device: torch.device) -> None:
        self.metrics: dict[str, float] = {}
        """The newest training metrics."""
        self.window = window
        self._run, self._card, self._device = run, card, device
        self._samples, self._seconds = 0, 0.0
        self._clock = time.monotonic()

    def introduce(self, description: str, *, config: Recipe, base_lr: float, total_steps: int) -> None:
        """Says what is about to be trained."""
        card, optimizer = self._card, config.optimizer
        lines = [
            f"{description}; {card.parameters:,} parameters; {card.world_size} × {card.device}",
            f"{total_steps} steps with a global batch of {card.global_batch}: {card.world_size} × "
            f"{card.per_device_batch_size} × {card.gradient_accumulation_steps}, in {card.precision}",
        ]
        if optimizer.lr_scaling != "none":
            lines.append(f"learning rate {base_lr:.6g}: {optimizer.lr:g}, scaled ({optimizer.lr_scaling})")
        for line in lines:
            self.say(line)
        self._run.card(self.card.as_dict())

    def say(self, text: str) -> None:
        logger.info(text)
        self._run.message(text)

    def begin(self) -> None:
        """Training begins, or goes on after an evaluation: time counts from here."""
        self._clock = time.monotonic()

    def log(self, step: int, *, lr: float) -> int:
        """Means over the window that ends at `step`. A collective. Raises NonFiniteLoss, once that is logged.

        Returns how many steps of the window were skipped, as their loss or gradient norm is not finite.
        """
        self.window.sync(step)
        now = time.monotonic()
        seconds = max(now - self._clock, 1e-9)
        self.metrics = {
            "train/loss": self.window.mean,
            "train/grad_norm": self.window.mean_norm,
            "train/lr": lr,
            "train/samples_per_second": self.window.samples / seconds,
        }
        self._run.log(self.metrics, step=step)
        if self.window.failure is not None:
            raise NonFiniteLoss(self.window.failure)
        self._samples += self.window.samples
        self._seconds += seconds
        skipped = self.window.skipped
        self.window.reset()
        self._clock = now
        return skipped

    def check(self, step: int) -> None:
        """Fetches what the steps up to `step` measured. A collective. Raises NonFiniteLoss."""
        self.window.sync(step)
        if self.window.failure is not None:
            raise NonFiniteLoss(self.window.failure)

    def epoch(self, measured: Mapping[str, float], *, epoch: int, epochs: int, step: int) -> None:
        """A line of the log at the end of an epoch."""
        shown = "  ".join(f"{key} {value:.4g}" for key, value in {**self.metrics, **measured}.items())
        logger.info("epoch %d/%d  step %d  %s", epoch, epochs, step, shown)

    @property
    def card(self) -> Card:
        """What the run is, as far as it is known by now."""
        speed = self._samples / self._seconds if self._seconds else None
        return replace(self._card, samples_per_second=speed, peak_memory_bytes=peak_memory(self._device))
