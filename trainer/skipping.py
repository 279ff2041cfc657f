"""Steps whose gradient is not finite change nothing: the one place that decides it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer


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
