"""What changes nothing: steps whose gradient is not finite, and stand-ins for a rank without samples."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage] the base of all that have them
from torch.optim import Optimizer

from trainer.parallel.batchnorm import Synchronized


def take_step(optimizer: Optimizer, *, norm: Tensor) -> Tensor:
    """Takes the optimizer's step, or skips it if `norm`, of the gradients, is not finite.

    Returns 1 if the step was skipped, else 0, as a tensor on the device. The kernels of a fused optimizer decide
    there. Only for an optimizer that is not fused the host waits for the device.
    """
    # A real 1, as fused kernels compare with it. What is infinite or NaN is NaN after a multiplication by 0.
    skipped = (norm * 0).nan_to_num(nan=1.0).float()
    if all(group.get("fused") for group in optimizer.param_groups):
        # GradScaler passes these attributes to fused optimizers.
        vars(optimizer).update(grad_scale=None, found_inf=skipped)
        try:
            optimizer.step()
        finally:
            del vars(optimizer)["grad_scale"], vars(optimizer)["found_inf"]
    elif not skipped.item():
        optimizer.step()
    return skipped


class Statistics:
    """The running statistics of a model's batch norms. Nothing in it waits for the device.

    Make it when the model is on its device, and in its shards.
    """

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
def move(targets: list[Tensor], ends: list[Tensor], weight: float, *, skipped: Tensor) -> None:
    """Moves each target by `weight` (0…1) of the way to its end, or not at all if the step was skipped.

    Does not wait for the device. All tensors have one dtype.
    """
    if targets:
        way = torch._foreach_sub(ends, targets)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        torch._foreach_mul_(way, _taken(skipped, targets[0]) * weight)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        torch._foreach_add_(targets, way)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


@torch.no_grad()
def replace(targets: list[Tensor], values: list[Tensor], *, skipped: Tensor) -> None:
    """Gives each target its value exactly, or leaves it as it is if the step was skipped.

    Does not wait for the device. All tensors have one dtype.
    """
    if targets:
        taken = _taken(skipped, targets[0])
        new = torch._foreach_mul(values, taken)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        torch._foreach_mul_(targets, 1 - taken)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        torch._foreach_add_(targets, new)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def by_dtype(targets: Sequence[Tensor], ends: Sequence[Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Returns the targets of each dtype and their ends, as `move` and `replace` take them."""
    dtypes = dict.fromkeys(target.dtype for target in targets)
    return [
        ([item for item in targets if item.dtype == dtype], [item for item in ends if item.dtype == dtype])
        for dtype in dtypes
    ]


def _taken(skipped: Tensor, like: Tensor) -> Tensor:
    """Returns 1 − `skipped` in the dtype of `like`, with which foreach kernels are fast."""
    return 1 - skipped.to(like.dtype)


@torch.no_grad()
def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
