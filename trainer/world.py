"""The process group: who this rank is, and how to be part of the group for as long as training lasts."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
import os
from typing import TypeVar, cast

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """One rank's place in the process group, and its device."""

    rank: int
    size: int
    local_size: int
    device: torch.device
    host: distributed.ProcessGroup | None = None
    """The same ranks over host memory, where the default group is a GPU's; objects go this way."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of every rank's `tensor`, in place. A collective."""
        distributed.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether it is True on any rank. A collective."""
        flags = torch.tensor(int(flag))
        distributed.all_reduce(flags, group=self.host)
        return bool(flags)

    def gather(self, value: T) -> list[T]:
        """Every rank's `value`, in the order of ranks. A collective."""
        values: list[T | None] = [None] * self.size
        distributed.all_gather_object(values, value, group=self.host)
        return cast(list[T], values)

    def collect(self, value: T) -> list[T]:
        """Every rank's `value` on rank 0, in the order of ranks; nothing elsewhere. A collective."""
        values: list[T | None] = [None] * self.size if self.rank == 0 else []
        distributed.gather_object(value, values or None, dst=0, group=self.host)
        return cast(list[T], values)

    def agree(self, value: T) -> T:
        """Rank 0's `value`: what is decided by it is decided once. A collective."""
        values = [value]
        distributed.broadcast_object_list(values, src=0, group=self.host)
        return values[0]

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Gives every rank the buffers of rank 0: batch norm's statistics, which each rank gathers for itself."""
        for buffer in model.buffers():
            distributed.broadcast(buffer, src=0)


@contextmanager
def joined(timeout: timedelta) -> Generator[World]:
    """Joins the group that torchrun's environment describes: NCCL where there is a GPU for this rank, else Gloo.

    `timeout` is that of one collective. Raises ValueError where that environment is absent.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)  # before anything else makes a context on GPU 0
        device = torch.device("cuda", local_rank)
        distributed.init_process_group("nccl", timeout=timeout, device_id=device)
        host = cast(distributed.ProcessGroup, distributed.new_group(timeout=timeout, backend="gloo"))
    else:
        device = torch.device("cpu")
        distributed.init_process_group("gloo", timeout=timeout)
        host = None
    yield World(
        rank=distributed.get_rank(),
        size=distributed.get_world_size(),
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        device=device,
        host=host,
    )
    # Ranks that leave Gloo at different moments can abort. After an exception there is no waiting for the others: the
    # process exits, and what it raised must come first.
    distributed.barrier()
    distributed.destroy_process_group()
