"""Where a run is: optimizer steps, epoch, and samples of the epoch."""

from collections.abc import Mapping
from typing import Any

from torchyard.contract.recipes import TrainingConfig
from trainer.sampler import TrainSampler


class Position:
    """The progress of a run. Every rank has the same one."""

    def __init__(self, sampler: TrainSampler, config: TrainingConfig) -> None:
        self.step = 0
        """Optimizer steps that are done, over the whole run."""
        self.epoch = 1
        """The epoch that is being trained, counted from 1."""
        self.samples = 0
        """Samples of this epoch that all ranks together have trained on."""
        self.end_of_epoch = False
        """Whether the epoch is complete, and evaluated if an evaluation was due."""
        self.ended = False
        """Whether the run is complete."""
        self._sampler, self._config = sampler, config
        self.total_steps = self._total_steps()
        """Optimizer steps of the whole run."""

    @property
    def epochs(self) -> float:
        """Epochs that are done, with the part of the current one. The number of ranks does not change it."""
        return self.epoch - 1 + self.samples / self._sampler.size

    @property
    def whole_epochs(self) -> int:
        """Epochs that have ended."""
        return self.epoch if self.end_of_epoch else self.epoch - 1

    @property
    def progress(self) -> dict[str, int]:
        """What `Run.progress` reports."""
        epochs = self._config.epochs
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "epoch": min(self.epoch, epochs),
            "epochs": epochs,
        }

    def advance(self, samples: int) -> None:
        """Counts an optimizer step on `samples` samples of all ranks."""
        self.step += 1
        self.samples += samples

    def complete_epoch(self, *, end_run: bool) -> None:
        """Marks the epoch as complete, and the run if it ends here: at its last step, or by early stopping."""
        self.end_of_epoch = self._sampler.count(self.samples) == 0
        self.ended = end_run

    def begin_next_epoch(self) -> None:
        """Moves to the beginning of the next epoch."""
        self.epoch, self.samples, self.end_of_epoch = self.epoch + 1, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Returns the keys of `state.pt` that describe the position."""
        sampler = self._sampler
        return {
            "step": self.step,
            "epoch": self.epoch,
            "end_of_epoch": self.end_of_epoch,
            "ended": self.ended,
            "sampler": {
                "epoch": self.epoch,
                "samples": self.samples,
                "world_size": sampler.world_size,
                "global_batch": sampler.global_batch,
                "batch_size": sampler.batch_size,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved position: after a complete epoch, at the beginning of the next one."""
        self.step, self.ended = state["step"], state["ended"]
        self.epoch, self.samples = state["sampler"]["epoch"], state["sampler"]["samples"]
        if state["end_of_epoch"]:
            self.begin_next_epoch()
        self.total_steps = self._total_steps()

    def _total_steps(self) -> int:
        """Returns the steps that are done, those left of this epoch, and those of the epochs after it."""
        epochs, limit = self._config.epochs, self._config.max_steps
        later = epochs - self.epoch
        left = self._sampler.count(self.samples) + later * self._sampler.count() if later >= 0 else 0
        total = self.step + left
        return total if limit is None else min(total, max(limit, self.step))
