"""Finds how large a micro-batch fits in memory, by trying."""

from collections.abc import Callable, Sequence
from functools import partial
import logging

import torch
from torch import Tensor, nn

from torchyard.contract.recipes import DistributedConfig, Recipe
from torchyard.run import accelerator
from torchyard.run.outofmemory import short_memory
from trainer.averaging import ExponentialAverage, Lookahead
from trainer.optimization import make_optimizer
from trainer.parallel import uses_ddp
from trainer.precision import Precision
from trainer.randomness import random_state, set_random_state
from trainer.sampler import micro_batch_limits
from trainer.skipping import take_step
from trainer.task import Task
from trainer.weights.initial import train_mode
from trainer.world import World

logger = logging.getLogger(__name__)

_COMPRESSED = {"none": 0.0, "fp16": 0.5, "bf16": 0.5, "powersgd": 1.0}
"""What a communication hook holds beside the gradients, in sizes of the gradients."""


def largest_fitting_batch(
    task: Task,
    *,
    batch_size: int,
    global_batch: int,
    batch_norm: bool,
    config: Recipe,
    precision: Precision,
    world: World,
) -> int:
    """Returns the largest of batch_size, half of it, … with which a step fits in the memory of every rank.

    With `batch_norm` a micro-batch may have one sample more, and that is tried (see `TrainSampler`).
    Each is tried with all that the step of a run has: gradients in buckets, the optimizer's moments and the averages.
    The model, its gradients and the random generators are unchanged afterwards. A collective. Call it before the model
    is wrapped: a pass must not contain a collective, as one rank alone may fail in it. Raises the out-of-memory error
    if not even one sample fits.
    """
    model, size = task.model, batch_size
    _connect(model, config.distributed, world)
    numbers = random_state()
    buffers = [buffer.clone() for buffer in model.buffers()]
    train_mode(model)
    while True:
        accumulates = global_batch > size * world.size
        _, most = micro_batch_limits(size, batch_norm=batch_norm)
        attempt = partial(_take_step, task, most, accumulates, config=config, precision=precision, world=world)
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
        logger.info("a micro-batch of %d samples does not fit in memory; trying %d", size * 2, size)


def _connect(model: nn.Module, config: DistributedConfig, world: World) -> None:
    """Has the ranks connect for what a step exchanges: NCCL does so at first use, and keeps hundreds of MB.

    It chooses its connections by the size of a message, so the smallest and the largest are sent.
    """
    if world.size == 1:
        return
    trained = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    for size in (4, min(trained, config.bucket_cap_mb << 20)):
        world.sum(torch.zeros(size // 4, device=world.device))
    accelerator.release_unused_memory()


def _take_step(task: Task, size: int, accumulates: bool, *, config: Recipe, precision: Precision, world: World) -> None:
    """Does what a step of a run does, but changes no weight: gradients and learning rate are 0."""
    model, device = task.model, world.device
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with_ddp = uses_ddp(config.distributed, world)
    in_buckets = with_ddp and config.distributed.gradient_as_bucket_view and not accumulates
    held = _held_by_ddp(trained, config.distributed, with_ddp=with_ddp, in_buckets=in_buckets)
    optimizer = make_optimizer(model, config.optimizer, lr=0.0, device=device)
    wanted = config.optimizer.lookahead
    lookahead = Lookahead(model, wanted) if wanted else None
    ema = ExponentialAverage(model, config.ema) if config.ema and config.ema.device == "model" else None
    _clear_gradients(trained)
    optimizer.step()  # makes the moments
    if not (accumulates or in_buckets):
        optimizer.zero_grad(set_to_none=True)
    batch, following = task.largest_batch(size), task.largest_batch(size)
    with precision.autocast():
        loss = task.loss(model(batch.inputs), batch.targets)
    loss.backward()
    del loss, following
    _clear_gradients(trained)
    skipped = take_step(optimizer, norm=torch.zeros((), device=device)).fill_(1.0)
    if wanted and lookahead:
        lookahead.update(wanted.every_steps, skipped=skipped)
    if ema:
        ema.update(1, skipped=skipped)
        with ema.applied(), torch.no_grad():
            model(batch.inputs)
    del held


def _clear_gradients(trained: Sequence[nn.Parameter]) -> None:
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()


def _held_by_ddp(
    trained: Sequence[nn.Parameter], config: DistributedConfig, *, with_ddp: bool, in_buckets: bool
) -> Tensor:
    """Returns as much memory as DDP holds beside the gradients.

    `in_buckets`: gradients are views of its buckets, which stay between steps. Without all-reduce they are not.
    """
    wrapped = with_ddp or (config.strategy == "local_sgd" and config.local_sgd.warmup_steps > 0)
    copies = _COMPRESSED[config.comm_hook] + (wrapped and not in_buckets)
    size = sum(parameter.nbytes for parameter in trained)
    return torch.empty(int(size * copies), dtype=torch.uint8, device=trained[0].device)


def _out_of_memory(attempt: Callable[[], None]) -> Exception | None:
    try:
        attempt()
    except Exception as error:
        if short_memory(error) is None:
            raise
        return error.with_traceback(None)  # the frames of its traceback would keep the tensors
    return None
