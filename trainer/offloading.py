"""Averages in host memory of tensors that are on a device."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from torchyard.run.accelerator import is_accelerator, record_events
from trainer.skipping import by_dtype, move

HOST = torch.device("cpu")


def host_copy(tensor: Tensor) -> Tensor:
    """Returns a copy in host memory, pinned if the tensor is on an accelerator."""
    copied = torch.empty_like(tensor, device=HOST, pin_memory=is_accelerator(tensor.device), requires_grad=False)
    return copied.copy_(tensor.detach())


class HostUpdates:
    """Updates averages in host memory, in a thread. A step only enqueues copies of `lives` and goes on.

    The next step waits for the thread, if that has not done its update by then.
    """

    def __init__(self, lives: Sequence[Tensor], averages: Sequence[Tensor]) -> None:
        self._lives = lives
        self._copies = [host_copy(live) for live in lives]
        self._alike = by_dtype(averages, self._copies)
        self._device = next((live.device for live in lives), HOST)
        self._skipped = host_copy(torch.zeros((), device=self._device))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torchyard average")
        self._update: Future[None] | None = None

    @torch.no_grad()
    def start(self, weight: float, *, skipped: Tensor) -> None:
        """Moves each average by `weight` of the way to what its tensor is now; not at all if the step was skipped."""
        self.finish()
        for copied, live in zip(self._copies, self._lives, strict=True):
            copied.copy_(live, non_blocking=True)
        self._skipped.copy_(skipped, non_blocking=True)
        arrived = record_events([self._device])
        self._update = self._thread.submit(self._move, weight, arrived)

    def finish(self) -> None:
        """Waits for the update that was started last."""
        update, self._update = self._update, None
        if update is not None:
            update.result()

    def _move(self, weight: float, arrived: "Sequence[torch.Event]") -> None:
        for event in arrived:
            event.synchronize()
        for averages, copies in self._alike:
            move(averages, copies, weight, skipped=self._skipped)
