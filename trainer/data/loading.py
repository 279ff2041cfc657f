"""Loads batches of samples by their indices, measures the wait for them, and moves tensors to the device."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
import os
import time
from typing import Literal, TypeVar

import torch
from torch import Tensor

from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import DataError
from torchyard.run.accelerator import is_accelerator
from trainer.data.loaders import answers

R = TypeVar("R")
T = TypeVar("T")

MOST_AUTO = 8
"""The most loader processes that `auto` gives a rank."""


@dataclass
class WaitClock:
    """Runs while this process waits for a batch that `load_batches` loads, or loads it itself."""

    seconds: float = 0.0
    """How long it has run."""


WAITED = WaitClock()
"""The clock of this process."""


@dataclass
class TokenCount:
    """Counts the tokens of the texts in the batches that this process takes, without padding."""

    count: int = 0


TOKENS = TokenCount()
"""The count of this process."""


def load_batches(load: Callable[[R], T], requests: Iterable[R], *, workers: int, device: torch.device) -> Iterator[T]:
    """Yields the result of `load` for each request, such as the files of a batch, in order. See `loaders.answers`.

    Tensors stay on the CPU, in pinned memory if `device` is a GPU and a loader process has made them. `WAITED` runs
    while a batch is not there yet. Raises the DataError that `load` raised.
    """
    for batch in _clocked(answers(load, requests, workers=workers, pinned=is_accelerator(device))):
        if isinstance(batch, DataError):
            raise batch
        yield batch


def loader_count(wanted: int | Literal["auto"], *, local_size: int, batches: int) -> int:
    """Returns the loader processes of one rank. No more than the `batches` of an epoch have something to do.

    `auto` takes the rank's share of the host's CPUs: what the service says, and at most those that the `local_size`
    ranks of the host may use.
    """
    if wanted != "auto":
        return min(wanted, batches)
    share = len(os.sched_getaffinity(0)) // local_size
    return min(MOST_AUTO, max(1, min(share, int(os.environ.get(Env.CPUS, share)))), batches)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on the device. The copy to a GPU is from pinned memory, and nothing waits for it."""
    if not is_accelerator(device) or is_accelerator(tensor.device):
        return tensor.to(device)
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)


def _clocked(batches: Iterable[T]) -> Iterator[T]:
    """Yields the batches. `WAITED` runs until each is there, and while the loader processes start."""
    begun = time.monotonic()
    for batch in batches:
        WAITED.seconds += time.monotonic() - begun
        yield batch
        begun = time.monotonic()
