"""PowerSGD (Vogels et al., arXiv 1905.13727): gradients as products of two thin matrices, with error feedback."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import (
    GradBucket,  # pyright: ignore[reportPrivateImportUsage]
    ProcessGroup,
    Work,  # pyright: ignore[reportPrivateImportUsage]
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from torchyard.run.accelerator import is_accelerator, wait_for
from trainer.world import World

RANK = 2
"""Columns of the thin matrices, as in the paper for image models."""
START = 10
"""All-reduces of whole gradients before the first compressed one."""


class _Bucket(NamedTuple):
    """What is kept of a bucket from step to step: the two thin matrices, and this rank's error."""

    p: Tensor
    q: Tensor
    errors: Tensor


class PowerSgd:
    """torch's PowerSGD hook, with a state that is saved and restored.

    The error of the compression belongs to one rank: at another world size it starts at zero.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._state = PowerSGDState(
            None if is_accelerator(world.device) else _WaitingGroup(),
            matrix_approximation_rank=RANK,
            start_powerSGD_iter=START,
            # Without it, a gradient of zeros becomes NaN.
            orthogonalization_epsilon=1e-8,  # pyright: ignore[reportArgumentType] any number
        )
        self._before: dict[int, _Bucket | None] = {}
        """The matrices and errors of each bucket before this step, to restore a skipped step. None: it had none."""

    def register(self, model: DistributedDataParallel) -> None:
        """Registers the hook with DDP."""
        model.register_comm_hook(self._state, self._compress)

    def end_step(self, *, skipped: Tensor) -> None:
        """Ends a step. If it was skipped (1), matrices and errors become what they were before it; 0: they stay.

        Does not wait for the device.
        """
        before, self._before = self._before, {}
        for index, kept in before.items():
            now = self._bucket(index)
            for own, earlier in zip(now, _first(index, now) if kept is None else kept, strict=True):
                torch.where(skipped > 0, earlier, own, out=own)

    def state_dict(self) -> dict[str, Any]:
        """Returns the two thin matrices of each bucket, and on rank 0 the errors of all ranks. A collective.

        The generator of the first matrices is not saved: only the first compressed step draws from it.
        """
        state = self._state
        buckets = [
            {
                "p": _host_copy(state.p_memory_dict[index]),
                "q": _host_copy(state.q_memory_dict[index]),
                "errors": self._gather(state.error_dict[index]),
            }
            for index in range(len(state.error_dict))
        ]
        wait_for([self._world.device])
        return {"iter": state.iter, "buckets": buckets}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restores a state. At another world size, only the count of all-reduces is restored."""
        state, world = self._state, self._world
        state.iter = saved["iter"]
        for index, bucket in enumerate(saved["buckets"]):
            if len(bucket["errors"]) != world.size:
                return
            state.p_memory_dict[index] = bucket["p"].to(world.device, copy=True)
            state.q_memory_dict[index] = bucket["q"].to(world.device, copy=True)
            state.error_dict[index] = bucket["errors"][world.rank].to(world.device, copy=True)

    def _compress(self, state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
        index, gradients = bucket.index(), bucket.buffer()
        if state.iter < state.start_powerSGD_iter:
            return powerSGD_hook(state, bucket)
        if index in state.error_dict and state.error_dict[index].shape != gradients.shape:
            for memory in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
                del memory[index]  # of a run with other buckets
        known = self._bucket(index) if index in state.q_memory_dict else None
        # The hook writes new matrices over the old ones, and makes a new tensor of errors.
        self._before[index] = known and _Bucket(known.p.clone(), known.q.clone(), known.errors)
        # To draw its first matrices, the hook seeds the generators of all devices and restores only that of the CPU:
        # all ranks would continue with the same dropout.
        draws = known is None and is_accelerator(gradients.device)
        with torch.random.fork_rng(
            devices=[gradients.get_device()] if draws else [], enabled=draws, device_type=gradients.device.type
        ):
            return powerSGD_hook(state, bucket)

    def _bucket(self, index: int) -> _Bucket:
        state = self._state
        return _Bucket(state.p_memory_dict[index], state.q_memory_dict[index], state.error_dict[index])

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Enqueues the copies of every rank's tensor to host memory on rank 0. Returns an empty list on other ranks."""
        parts = [torch.empty_like(tensor) for _ in range(self._world.size)] if self._world.rank == 0 else None
        distributed.gather(tensor, parts, dst=0)
        return [_host_copy(part) for part in parts or []]


class _WaitingGroup(ProcessGroup):
    """The group of all ranks on CPUs. It ends each all-reduce before it returns.

    What the hook computes between its three all-reduces then runs in the thread of the backward pass. In a thread of
    Gloo, products are added up by another number of threads: ranks got different gradients of the same matrices. And
    ranks start the all-reduces of several buckets in the same order; else Gloo aborts.
    """

    def __init__(self) -> None:
        whole = distributed.group.WORLD
        assert whole is not None
        super().__init__(whole.rank(), whole.size())  # pyright: ignore[reportCallIssue, reportArgumentType]
        self._whole = whole

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> Work:  # pyright: ignore[reportIncompatibleMethodOverride]
        work = self._whole.allreduce(tensors, options)
        work.wait()
        return work


def _host_copy(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", copy=True, non_blocking=True)


def _first(index: int, like: _Bucket) -> _Bucket:
    """Returns what a bucket begins with after a first compressed step that was skipped; the same on every rank."""
    random = torch.Generator().manual_seed(index)
    q = torch.randn(like.q.shape, generator=random, dtype=like.q.dtype).to(like.q.device)
    return _Bucket(torch.zeros_like(like.p), q, torch.zeros_like(like.errors))
