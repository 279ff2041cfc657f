"""PowerSGD (Vogels et al., arXiv 1905.13727): gradients as products of two thin matrices, with error feedback."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainer.world import World

RANK = 2
"""Columns of the thin matrices: what the paper takes for pictures."""
START = 10
"""All-reduces of whole gradients that come before the first compressed one."""


class PowerSgd:
    """torch's PowerSGD hook, with a state that survives resume.

    What compression left out is the memory of one rank: at another world size it begins anew.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._state = PowerSGDState(
            None,
            matrix_approximation_rank=RANK,
            start_powerSGD_iter=START,
            # Without it, a gradient of zeros becomes NaN.
            orthogonalization_epsilon=1e-8,  # pyright: ignore[reportArgumentType] any number
        )

    def register(self, model: DistributedDataParallel) -> None:
        model.register_comm_hook(self._state, _compress)

    def state_dict(self) -> dict[str, Any]:
        """Of each bucket the two thin matrices, and every rank's error on rank 0. A collective.

        The generator of the first matrices is left out: it is drawn from in one step alone.
        """
        state = self._state
        return {
            "iter": state.iter,
            "buckets": [
                {
                    "p": state.p_memory_dict[index].to("cpu", copy=True),
                    "q": state.q_memory_dict[index].to("cpu", copy=True),
                    "errors": self._gather(state.error_dict[index]),
                }
                for index in range(len(state.error_dict))
            ],
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        state, world = self._state, self._world
        state.iter = saved["iter"]
        for index, bucket in enumerate(saved["buckets"]):
            if len(bucket["errors"]) != world.size:
                return
            state.p_memory_dict[index] = bucket["p"].to(world.device, copy=True)
            state.q_memory_dict[index] = bucket["q"].to(world.device, copy=True)
            state.error_dict[index] = bucket["errors"][world.rank].to(world.device, copy=True)

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's tensor in host memory, on rank 0; elsewhere nothing."""
        parts = [torch.empty_like(tensor) for _ in range(self._world.size)] if self._world.rank == 0 else None
        distributed.gather(tensor, parts, dst=0)
        return [part.cpu() for part in parts or []]


def _compress(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    index, gradients = bucket.index(), bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        return powerSGD_hook(state, bucket)
    if index in state.error_dict and state.error_dict[index].shape != gradients.shape:
        for memory in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
            del memory[index]  # of a run with other buckets
    before = state.q_memory_dict[index].clone() if index in state.q_memory_dict else None
    # To draw its first matrices the hook seeds the generators of all devices, and puts back the CPU's alone: the ranks
    # would go on with the same dropout.
    draws = before is None and gradients.device.type == "cuda"
    with torch.random.fork_rng(devices=[gradients.get_device()] if draws else [], enabled=draws):
        future = powerSGD_hook(state, bucket)
    future = future.then(lambda done: _forget_overflow(state, index, before, done.value()))
    if gradients.device.type == "cpu":
        # Gloo's threads begin the second and third all-reduce of a bucket whenever the first ends. Unless buckets wait
        # for each other, ranks begin them in different orders, and Gloo aborts.
        future.wait()
    return future


def _forget_overflow(state: PowerSGDState, index: int, before: Tensor | None, gradients: Tensor) -> Tensor:
    """Keeps what is infinite in `gradients`, whose step is skipped in fp16, out of the memory of later steps.

    No host sync; the same on every rank, as the gradients are.
    """
    q = state.q_memory_dict[index]
    if before is None:
        before = torch.randn(q.shape, generator=torch.Generator().manual_seed(index), dtype=q.dtype).to(q.device)
    finite = gradients.isfinite().all()
    state.q_memory_dict[index] = torch.where(finite, q, before)
    state.error_dict[index] = torch.where(finite, state.error_dict[index], 0.0)
    return gradients
