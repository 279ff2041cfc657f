"""How large a micro-batch the memory holds, found by trying."""

from collections.abc import Callable
import logging

import torch

from torchyard.contract.recipes import Recipe
from trainer.models.initial import train_mode
from trainer.precision import Precision
from trainer.randomness import random_state, set_random_state
from trainer.task import Task
from trainer.world import World

logger = logging.getLogger(__name__)

_MOMENTS = {"sgd": 1, "rmsprop": 2, "adam": 2, "adamw": 2}


def fitting_batch(task: Task, *, batch_size: int, config: Recipe, precision: Precision, world: World) -> int:
    """The largest of batch_size, half of it, … for which a forward and backward pass fits the memory of every rank.

    What training will hold beside them (moments, averages) is held meanwhile. The model, its gradients and the random
    numbers are left as they were. To be called before the model is wrapped: nothing in the pass may be a collective, as
    a rank may fail in it alone; the answer is one. Raises the out-of-memory error where no size fits.
    """
    model, size = task.model, batch_size
    beside = _bytes_beside(task, config)
    numbers = random_state()
    buffers = [buffer.clone() for buffer in model.buffers()]

    def attempt() -> None:
        held = torch.empty(beside, dtype=torch.uint8, device=world.device)
        batch = task.largest(size)
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
            raise failure or MemoryError("another rank has not the memory for a single sample")
        size //= 2
        if world.device.type == "cuda":
            torch.cuda.empty_cache()
        logger.info("a micro-batch of %d does not fit the memory: trying %d", size * 2, size)


def _bytes_beside(task: Task, config: Recipe) -> int:
    weights = sum(parameter.nbytes for parameter in task.model.parameters() if parameter.requires_grad)
    copies = _MOMENTS[config.optimizer.name] + bool(config.ema) + bool(config.optimizer.lookahead)
    return weights * (copies + (not config.distributed.gradient_as_bucket_view))


def _out_of_memory(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        lacking = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
            type(error) is RuntimeError and "can't allocate memory" in str(error)
        )
        if not lacking:
            raise
        return error.with_traceback(None)  # its frames would keep the tensors
    return None
