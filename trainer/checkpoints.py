"""Writes the checkpoints of a run."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from torchyard.contract.recipes import Recipe
from torchyard.models.checkpoint import FORMAT
from torchyard.run import Run
from torchyard.run.together import Ranks
from trainer.contents import Contents
from trainer.finiteness import names_to_check, nonfinite_weights
from trainer.state import RunState
from trainer.strategies.gathering import bytes_in_shards, shards
from trainer.task import Evaluation, Task


class Checkpoints:
    """Writes the state of a run with what identifies its recipe and its data."""

    def __init__(
        self, task: Task, *, trainer: str, config: Recipe, run: Run, state: RunState, contents: Contents
    ) -> None:
        self._task, self._trainer, self._run, self._state = task, trainer, run, state
        self._contents, self._world = contents, state.world
        self._config = config.model_dump(mode="json")
        self._checked = names_to_check(task.model)

    def save(self, *, at_stop: bool = False, evaluation: Evaluation | None = None) -> None:
        """Publishes a checkpoint, with the result of an evaluation of these weights. A collective.

        `at_stop`: waits until it is written. Raises NonFiniteLoss.
        """
        position, report = self._state.position, self._state.report
        report.raise_if_nonfinite(position.step)
        evaluation = evaluation or Evaluation({})
        metrics = {**report.metrics, **evaluation.metrics}
        state: dict[str, Any] = {
            **self._task.metadata,
            **self._identity(),
            **self._state.state_dict(at_stop=at_stop),
            "metrics": metrics,
        }
        parts = self._in_parts(state)
        card = {**report.card.as_dict(), "data_hash": self._contents.data_hash}  # which the state has just collected
        self._run.card(card)
        whole = shards(state) if parts else self._state.learner.strategy.whole(state)
        self._run.save_checkpoint(
            whole,
            step=position.step,
            epoch=position.epoch,
            end_of_epoch=position.end_of_epoch,
            metrics=metrics,
            weights=None if parts else whole["model"],
            files={**self._task.files, **evaluation.files},
            card={**card, "trainer": self._trainer, "config": self._config},
            background=not at_stop,
            unfit=partial(nonfinite_weights, names=self._checked),
            owned=whole is not state and not parts,
            ranks=Ranks(self._world.rank, self._world.size, self._world.gather) if parts else None,
        )

    def _in_parts(self, state: Mapping[str, Any]) -> bool:
        """Whether each rank writes its own part of the state: it has shards, and is large. All ranks say the same."""
        above = self._run.shard_above
        return above is not None and self._world.size > 1 and bytes_in_shards(state) > above

    def _identity(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "recipe": self._trainer,
            "config": self._config,
            **self._contents.state_dict(),
            "threads": torch.get_num_threads(),
        }
