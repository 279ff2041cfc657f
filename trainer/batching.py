"""Chooses the size of a micro-batch, and so how the samples of an optimizer step are divided."""

from collections.abc import Callable, Mapping
from typing import Any

from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage] the base of all of them

from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes import Recipe
from torchyard.run import Run
from trainer.memory import largest_fitting_batch
from trainer.precision import Precision
from trainer.sampler import TrainSampler
from trainer.task import Task
from trainer.world import World


def make_sampler(
    task: Task,
    *,
    config: Recipe,
    precision: Precision,
    world: World,
    run: Run,
    state: Mapping[str, Any] | None,
) -> TrainSampler:
    """Returns the sampler of the training split. Raises ConfigError.

    A resumed run keeps the global batch of the checkpoint's `state`, whatever the number of ranks. `auto_batch` makes
    the micro-batch as small as the memory needs, and halves it for each attempt that ran out of memory since the
    checkpoint. The model must not be wrapped yet.
    """
    training = config.training
    wanted = training.per_device_batch_size
    global_batch = wanted * training.gradient_accumulation_steps * world.size
    if state is not None:
        global_batch, wanted = state["sampler"]["global_batch"], min(wanted, state["sampler"]["batch_size"])
    batch_norm = any(isinstance(module, _BatchNorm) for module in task.model.modules())
    # On more ranks than before, some stand in rather than that each has a single sample for its batch norms.
    wanted = min(wanted, max(-(-global_batch // world.size), 2 if batch_norm else 1))
    batch_size = wanted
    if training.auto_batch:
        fitting = largest_fitting_batch(
            task,
            batch_size=wanted,
            global_batch=global_batch,
            batch_norm=batch_norm,
            config=config,
            precision=precision,
            world=world,
        )
        words = config.batch_in_words
        _tell(run, f"a micro-batch of {words(wanted)} does not fit in memory", (wanted, fitting), global_batch, words)
        batch_size = max(1, fitting >> run.config.get("memory_shortages", 0))
        _tell(run, "training ran out of memory before", (fitting, batch_size), global_batch, words)
    if config.distributed.static_graph:
        if global_batch > batch_size * world.size:
            raise ConfigError(
                f"distributed.static_graph cannot accumulate gradients, which a global batch of {global_batch} needs "
                f"on {world.size} processes: resume on more of them, or submit a new job without static_graph"
            )
        if batch_norm:
            batch_size = max(batch_size, 2)  # a sample that joins the step before takes no micro-batch of its own
    return TrainSampler(
        task.samples,
        global_batch=global_batch,
        batch_size=batch_size,
        world_size=world.size,
        rank=world.rank,
        seed=training.seed,
        lengths=task.lengths,
        counts=task.counts,
        batch_norm=batch_norm,
    )


def _tell(run: Run, why: str, sizes: tuple[int, int], global_batch: int, words: Callable[[int], str]) -> None:
    """Tells the job's people that the micro-batch is reduced from one size to another, unless they are equal."""
    before, after = sizes
    if after < before:
        run.message(
            f"{why}: micro-batches are reduced from {words(before)} to {after}. An optimizer step takes more of them, "
            f"and the global batch stays {global_batch}",
            level="warning",
        )
