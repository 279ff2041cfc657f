"""Loads batches of samples by their indices, measures the wait for them, and moves tensors to the device."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
import os
import signal
import time
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchyard.contract.errors import DataError
from torchyard.run.accelerator import is_accelerator

T = TypeVar("T")


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


def load_batches(
    load: Callable[[Tensor], T], plan: Sequence[Tensor], *, workers: int, device: torch.device
) -> Iterator[T]:
    """Yields the result of `load` for each batch of indices in `plan`, in order. `workers` processes load ahead.

    Tensors stay on the CPU, in pinned memory if `device` is a GPU. `WAITED` runs while a batch is not there yet. Raises
    the DataError that `load` raised.
    """
    if not plan:
        return
    loader = DataLoader(
        _Batches(load),
        sampler=plan,
        batch_size=None,
        num_workers=min(workers, len(plan)),
        pin_memory=is_accelerator(device),
        worker_init_fn=_start_loader,
        generator=torch.Generator(),  # its own: every loader would draw from the shared one
    )
    for batch in _clocked(loader):
        if isinstance(batch, DataError):
            raise batch
        yield batch


def loader_count(wanted: int | Literal["auto"], *, local_size: int) -> int:
    """Returns the loader processes of one rank. `auto` divides the CPUs among the `local_size` ranks of the host."""
    return min(8, max(1, len(os.sched_getaffinity(0)) // local_size)) if wanted == "auto" else wanted


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on the device. The copy to a GPU is from pinned memory, and nothing waits for it."""
    if not is_accelerator(device) or is_accelerator(tensor.device):
        return tensor.to(device)
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)


def _clocked(loader: Iterable[T]) -> Iterator[T]:
    """Yields the batches of `loader`. `WAITED` runs until each is there, and while the loader processes start."""
    begun = time.monotonic()
    for batch in loader:
        WAITED.seconds += time.monotonic() - begun
        yield batch
        begun = time.monotonic()


class _Batches(Dataset[T | DataError], Generic[T]):
    """A data set that is indexed by a whole batch."""

    def __init__(self, load: Callable[[Tensor], T]) -> None:
        self._load = load

    def __getitem__(self, indices: Tensor) -> T | DataError:
        try:
            return self._load(indices)
        except DataError as error:
            return error  # if it were raised in a loader process, users would see it inside a traceback


def _start_loader(_: int) -> None:
    """Sets one thread, and lets SIGTERM end the loader process, though the rank may handle it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
