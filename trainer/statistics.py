"""The running statistics of batch norms: a skipped step leaves them as they were, and so does a stand-in."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage] the base of all that have them

from trainer.strategies.batchnorm import Synchronized


class Statistics:
    """Make it when the model is on its device, and in its shards. Nothing in it waits for the device."""

    def __init__(self, model: nn.Module) -> None:
        self._norms = [module for module in model.modules() if isinstance(module, _NormBase)]
        buffers = [buffer for module in self._norms for buffer in module.buffers(recurse=False)]
        # As bytes, all of them are copied by one operation, whatever their dtypes.
        self._lives = [buffer.detach().view(-1).view(torch.uint8) for buffer in buffers]
        sizes = [live.numel() for live in self._lives]
        device = self._lives[0].device if self._lives else None
        self._kept, self._now = (torch.empty(sum(sizes), dtype=torch.uint8, device=device) for _ in range(2))
        self._kept_parts, self._now_parts = list(self._kept.split(sizes)), list(self._now.split(sizes))

    def keep(self) -> None:
        """Keeps the statistics before a step."""
        _copy(self._kept_parts, self._lives)

    def restore(self, *, skipped: Tensor) -> None:
        """Gives the statistics the values that were kept, if `skipped` is 1; leaves them alone if it is 0."""
        if not self._lives:
            return
        _copy(self._now_parts, self._lives)
        torch.where(skipped > 0, self._kept, self._now, out=self._now)
        _copy(self._lives, self._now_parts)

    @contextmanager
    def untouched(self) -> Generator[None]:
        """Returns a context in which this rank's inputs do not count in the statistics.

        A batch norm that is synchronized takes part in the exchange with a count of 0. The others use their statistics,
        as in an evaluation: a single sample has none of its own.
        """
        training = [module for module in self._norms if module.training]
        synchronized = [module for module in training if isinstance(module, Synchronized)]
        alone = [module for module in training if not isinstance(module, Synchronized)]
        for module in alone:
            module.training = False
        for module in synchronized:
            module.stands_in = True
        try:
            yield
        finally:
            for module in alone:
                module.training = True
            for module in synchronized:
                module.stands_in = False


@torch.no_grad()
def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
