"""The number format of the forward pass, and the scale of the loss in fp16."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchyard.models.placement import DTYPES, evaluating, precision

_FIRST_SCALE = 2.0**16
_GROWTH, _BACKOFF, _GROWTH_STEPS = 2.0, 0.5, 2000
"""GradScaler's: what the scale is multiplied by after so many steps without an overflow, and after an overflow."""


class Precision:
    """`bf16`, `fp16` or `fp32`; `auto` is bf16 on a GPU that has it, else fp32.

    fp16 scales the loss as GradScaler does, so that small gradients do not underflow, but never waits for the device.
    """

    def __init__(self, wanted: str, device: torch.device) -> None:
        self.name = precision(wanted, device)
        self.dtype = DTYPES.get(self.name)
        """The format of matrix products and convolutions; None: that of the weights."""
        self.scale: Tensor | None = None
        """What the loss is multiplied by, on the device; None: 1, always."""
        self._device = device
        if self.name == "fp16":
            self.scale = torch.full((), _FIRST_SCALE, device=device)
            self._steps = torch.zeros((), dtype=torch.int32, device=device)  # pyrefly: ignore[possibly-uninitialized-attribute] read with `scale`
            """The steps since the scale was changed."""

    def autocast(self) -> torch.autocast | nullcontext[None]:
        """Returns the context of a forward pass in training and of its loss."""
        return nullcontext() if self.dtype is None else torch.autocast(self._device.type, dtype=self.dtype)

    def evaluation(self) -> torch.autocast | nullcontext[None]:
        """Returns the context of an evaluation: in bf16 where training is, else in single precision."""
        return evaluating(self.name, self._device)

    def unscale(self, optimizer: Optimizer) -> None:
        """Divides the gradients by the scale."""
        if self.scale is None:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, self.scale.reciprocal())  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

    def update(self, skipped: Tensor) -> None:
        """Adapts the scale after a step. `skipped`: 1 if its gradients overflowed, else 0."""
        if self.scale is not None:
            self.scale = self.scale.clone()  # the scale of the steps before is still to be read
            torch._amp_update_scale_(self.scale, self._steps, skipped, _GROWTH, _BACKOFF, _GROWTH_STEPS)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

    def state_dict(self) -> dict[str, Any]:
        """Returns plain numbers, by GradScaler's names. Empty if nothing is scaled."""
        return {} if self.scale is None else {"scale": self.scale.item(), "_growth_tracker": self._steps.item()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state."""
        if self.scale is not None and state:
            self.scale = torch.full_like(self.scale, state["scale"])
            self._steps.fill_(state["_growth_tracker"])


def use_fast_kernels() -> None:
    """Lets GPUs multiply fp32 matrices in TF32, and try which convolution is the fastest for a shape."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
