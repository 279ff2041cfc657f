"""The process group of a run: this rank's number in it, and collectives over host memory."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
import io
import os
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.serialization import safe_globals

from torchyard.run import accelerator

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The place of one rank in the process group, and its device."""

    rank: int
    size: int
    local_size: int
    device: torch.device
    host: distributed.ProcessGroup | None = None
    """A Gloo group of the same ranks for Python objects, if the default group is NCCL."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Replaces `tensor` by its sum over all ranks, and returns it. A collective."""
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Returns whether `flag` is True on any rank. A collective."""
        flags = torch.tensor(int(flag))
        distributed.all_reduce(flags, group=self.host)
        return bool(flags)

    def gather(self, value: T) -> list[T]:
        """Returns the `value` of every rank, in the order of ranks. A collective."""
        own, sizes = self._padded(value)
        encoded = [torch.empty_like(own) for _ in sizes]
        distributed.all_gather(encoded, own, group=self.host)
        return [_decoded(tensor[:size]) for tensor, size in zip(encoded, sizes, strict=True)]

    def collect(self, value: T) -> list[T]:
        """Returns the `value` of every rank on rank 0, and an empty list on other ranks. A collective."""
        own, sizes = self._padded(value)
        encoded = [torch.empty_like(own) for _ in sizes] if self.rank == 0 else None
        distributed.gather(own, encoded, dst=0, group=self.host)
        if encoded is None:
            return []
        return [_decoded(tensor[:size]) for tensor, size in zip(encoded, sizes, strict=True)]

    def numbers_from_rank_0(self, values: Mapping[str, float]) -> dict[str, float]:
        """Returns the numbers of rank 0. All ranks have the same names. A collective."""
        numbers = torch.tensor(list(values.values()), dtype=torch.float64)
        if self.size > 1 and values:
            distributed.broadcast(numbers, src=0, group=self.host)
        return dict(zip(values, numbers.tolist(), strict=True))

    def integers_from_rank_0(self, values: Sequence[int]) -> list[int]:
        """Returns the integers of rank 0. All ranks have equally many. A collective."""
        integers = torch.tensor(values, dtype=torch.int64)
        if self.size > 1 and values:
            distributed.broadcast(integers, src=0, group=self.host)
        return integers.tolist()

    def from_rank_0(self, value: T) -> T:
        """Returns the `value` of rank 0, so that all ranks decide the same. A collective."""
        encoded = _encoded(value if self.rank == 0 else None)
        size = torch.tensor(len(encoded))
        distributed.broadcast(size, src=0, group=self.host)
        encoded = encoded if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        distributed.broadcast(encoded, src=0, group=self.host)
        return _decoded(encoded)

    def _padded(self, value: object) -> tuple[Tensor, list[int]]:
        """Encodes `value`, padded to the length of the longest rank's. Returns all lengths, too. A collective."""
        encoded = _encoded(value)
        sizes = [torch.tensor(0) for _ in range(self.size)]
        distributed.all_gather(sizes, torch.tensor(len(encoded)), group=self.host)
        lengths = [int(size) for size in sizes]
        return nn.functional.pad(encoded, (0, max(lengths) - len(encoded))), lengths


@contextmanager
def joined(timeout: timedelta) -> Generator[World]:
    """Joins the process group that torchrun's environment describes: NCCL if this host has GPUs, else Gloo.

    `timeout`: the timeout of one collective. Raises ValueError without that environment.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = accelerator.own_device(local_rank)
    backend = distributed.get_default_backend_for_device(device)
    if accelerator.is_accelerator(device):
        accelerator.select(device)  # before anything creates a context on GPU 0
        distributed.init_process_group(backend, timeout=timeout, device_id=device)
        host = cast(distributed.ProcessGroup, distributed.new_group(timeout=timeout, backend="gloo"))
    else:
        distributed.init_process_group(backend, timeout=timeout)
        host = None
    yield World(
        rank=distributed.get_rank(),
        size=distributed.get_world_size(),
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        device=device,
        host=host,
    )
    # Ranks that leave Gloo at different moments can abort. After an exception the process exits at once instead, so
    # that it does not wait for the other ranks.
    distributed.barrier()
    distributed.destroy_process_group()


def _encoded(value: object) -> Tensor:
    """Returns `value` as bytes. The collectives of PyTorch for objects unpickle all that comes, before 2.14."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)


def _decoded(encoded: Tensor) -> Any:
    with safe_globals([bytes]):  # an empty one is pickled by its name
        return torch.load(io.BytesIO(encoded.numpy().tobytes()), weights_only=True)
