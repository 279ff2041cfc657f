"""Finds how large a micro-batch fits in memory, by trying."""

from collections.abc import Callable
import logging

import torch

from torchyard.contract.recipes import Recipe
from torchyard.run import accelerator
from torchyard.run.outofmemory import short_memory
from trainer.models.initial import train_mode
from trainer.precision import Precision
from trainer.randomness import random_state, set_random_state
from trainer.task import Task
from trainer.world import World

logger = logging.getLogger(__name__)

_MOMENTS = {"sgd": 1, "rmsprop": 2, "adam": 2, "adamw": 2}


def largest_fitting_batch(task: Task, *, batch_size: int, config: Recipe, precision: Precision, world: World) -> int:
    """Returns the largest of batch_size, half of it, … for which forward and backward fit in the memory of every rank.

    The memory of the optimizer's moments and of averages is reserved meanwhile. The model, its gradients and the random
    generators are unchanged afterwards. A collective. Call it before the model is wrapped: a pass must not contain a
    collective, as one rank alone may fail in it. Raises the out-of-memory error if not even one sample fits.
    """
    model, size = task.model, batch_size
    reserved = _reserved_bytes(task, config)
    numbers = random_state()
    buffers = [buffer.clone() for buffer in model.buffers()]

    def attempt() -> None:
        held = torch.empty(reserved, dtype=torch.uint8, device=world.device)
        batch = task.largest_batch(size)
        with precision.autocast():
            loss = task.loss(model(batch.inputs), batch.targets)
        loss.backward()
        del held

    train_mode(model)
    while True:
        failure = _out_of_memory(attempt)
        model.zero_grad(set_to_none=True)
        set_random_state(numbers)
        for buffer, before in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        if not world.any(failure is not None):
            return size
        if size == 1:
            raise failure or MemoryError("another rank has too little memory for a single sample")
        size //= 2
        accelerator.release_unused_memory()
        logger.info("a micro-batch of %d samples does not fit in memory: trying %d", size * 2, size)


def _reserved_bytes(task: Task, config: Recipe) -> int:
    weights = sum(parameter.nbytes for parameter in task.model.parameters() if parameter.requires_grad)
    copies = (
        _MOMENTS[config.optimizer.name]
        + bool(config.ema and config.ema.device == "model")
        + bool(config.optimizer.lookahead)
    )
    return weights * (copies + (not config.distributed.gradient_as_bucket_view))


def _out_of_memory(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        if short_memory(error) is None:
            raise
        return error.with_traceback(None)  # the frames of its traceback would keep the tensors
    return None
