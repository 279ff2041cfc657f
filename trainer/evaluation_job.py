"""`mode: evaluate`: measures a checkpoint on the validation split of the job's data, on all ranks, and ends."""

from collections.abc import Mapping
import logging
import os
from pathlib import Path
from typing import Any

import torch

from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Recipe
from torchyard.models import checkpoint
from torchyard.run import Run, accelerator
from trainer.card import versions
from trainer.contents import Contents
from trainer.data.scanning import Scan
from trainer.parallel import make_strategy
from trainer.precision import Precision
from trainer.recipes import make_task
from trainer.sampler import evaluation_batches
from trainer.stopping import StopCheck, StopRequested
from trainer.task import Evaluation, Task
from trainer.weights.starting import load_weights, read_initial
from trainer.world import World

OF_THE_JOB = ("source", "val_fraction", "split_seed", "workers", "cache")
"""The keys of `config.data` that say which data is measured. The others say how it is read: the checkpoint's count."""

logger = logging.getLogger(__name__)


def evaluate(run: Run, *, config: Recipe, world: World) -> bool:
    """Logs the checkpoint's metrics at its step, and leaves the files of the evaluation as artifacts.

    Returns False if it stops before: then nothing is kept, and a later attempt begins again. A collective. Raises
    DataError and ConfigError.
    """
    state = read_initial(run)
    if state is None:
        raise ConfigError("mode evaluate needs init_from, the checkpoint to measure")
    merged = with_model_of(config, state)
    precision = Precision(merged.training.precision, world.device)
    task = _task(merged, state, run=run, world=world, compute=precision.dtype)
    contents = Contents(task, source=config.data.source, run=run, world=world)
    contents.check(None)
    step = _step_of(state)
    run.card(_card(task, merged, world=world, precision=precision.name, data_hash=contents.data_hash))
    run.message(f"evaluating the checkpoint of step {step} on {task.validation_samples} samples")
    try:
        with precision.evaluation():
            evaluation = task.evaluate(world, on_batch=StopCheck(run, world, _Progress(run, task, merged, world)))
    except StopRequested:
        return False
    metrics = world.numbers_from_rank_0(evaluation.metrics)
    run.log(metrics, step=step)
    if world.rank == 0:
        _keep_files(evaluation)
        evaluation.show(run, step)
    logger.info("step %d  %s", step, "  ".join(f"{key} {value:.4g}" for key, value in metrics.items()))
    return True


def with_model_of(config: Recipe, state: Mapping[str, Any]) -> Recipe:
    """Returns the checkpoint's configuration with what the job says of its data and of how it is measured."""
    saved = checkpoint.config_of("init_from", state)
    data = {key: getattr(config.data, key) for key in OF_THE_JOB if key in type(config.data).model_fields}
    training = {key: getattr(config.training, key) for key in ("per_device_batch_size", "precision")}
    return saved.model_copy(
        update={
            "data": saved.data.model_copy(update=data),
            "training": saved.training.model_copy(update=training),
            "evaluation": config.evaluation,
            "distributed": config.distributed,
        }
    )


def _task(config: Recipe, state: Mapping[str, Any], *, run: Run, world: World, compute: torch.dtype | None) -> Task:
    task = make_task(
        config,
        source=run.data or config.data.source,
        weights=run.weights if config.STARTS_ON_BASE and run.weights else "none",
        device=world.device,
        local_size=world.local_size,
        metadata={**state, "raw": None},
        scan=Scan.of_run(run, world, source=config.data.source),
    )
    try:
        load_weights(task, state["model"])
    except RuntimeError as error:
        raise DataError(f"init_from: the data does not fit the checkpoint's model: {error}") from error
    if task.unfilled is None:
        task.model.to(world.device)  # with fsdp it was built on the CPU
    else:
        make_strategy(task.model, config.distributed, world, compute=compute, unfilled=task.unfilled)
    return task


def _step_of(state: Mapping[str, Any]) -> int:
    step = state.get("step")
    return step if isinstance(step, int) and step >= 0 else 0


def _card(task: Task, config: Recipe, *, world: World, precision: str, data_hash: str | None) -> dict[str, Any]:
    """Returns what the page shows of the run: those facts of a training that an evaluation has, too."""
    return {
        "parameters": sum(parameter.numel() for parameter in task.model.parameters()),
        "validation_samples": task.validation_samples,
        "per_device_batch_size": config.training.per_device_batch_size,
        "world_size": world.size,
        "device": accelerator.name(world.device),
        "precision": precision,
        "data_hash": data_hash,
        "split_hash": task.split_hash,
        "versions": versions(),
    }


def _keep_files(evaluation: Evaluation) -> None:
    folder = RunDir.of_job(Path(os.environ[Env.RUN_DIR])).artifacts
    for name, content in evaluation.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(content) if isinstance(content, bytes) else content(file)


class _Progress:
    """Reports the batches that are measured. A task may call it for further batches, which count for nothing."""

    def __init__(self, run: Run, task: Task, config: Recipe, world: World) -> None:
        size = config.training.per_device_batch_size
        self._run, self._done = run, 0
        self._total = len(evaluation_batches(task.validation_samples, batch_size=size, world_size=world.size))
        run.progress(step=0, total_steps=self._total)

    def __call__(self) -> None:
        self._done = min(self._done + 1, self._total)
        self._run.progress(step=self._done, total_steps=self._total)
