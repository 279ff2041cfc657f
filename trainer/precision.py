"""The number format of the forward pass, and the optimizer's step with fp16 loss scaling."""

from contextlib import nullcontext

import torch
from torch import Tensor, autocast
from torch.amp import GradScaler
from torch.optim import Optimizer

from torchyard.run import accelerator

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """`bf16`, `fp16` or `fp32`; `auto` is bf16 on a GPU that has it, else fp32.

    fp16 scales the loss, so that small gradients do not underflow, and waits for the device after each step to learn
    whether the gradients overflowed.
    """

    def __init__(self, wanted: str, device: torch.device) -> None:
        self.name = _resolve(wanted, device)
        self.scaler = GradScaler(device.type, enabled=self.name == "fp16")
        self._device = device

    def autocast(self) -> autocast | nullcontext[None]:
        """Returns the context of a forward pass in training and of its loss."""
        dtype = _DTYPES.get(self.name)
        return nullcontext() if dtype is None else autocast(self._device.type, dtype=dtype)

    def step(self, optimizer: Optimizer, *, norm: Tensor, wait: bool) -> bool:
        """Takes the optimizer's step, or skips it if `norm`, of the unscaled gradients, is not finite.

        Returns False if the step is known to be skipped. With `wait`, and in fp16, this is always known. Without `wait`
        the device decides, and the optimizer must be fused.
        """
        if not wait and not self.scaler.is_enabled():
            _step_on_device(optimizer, norm)
            return True
        finite = bool(norm.isfinite())
        if finite:
            self.scaler.step(optimizer)
        self.scaler.update()
        return finite

    @property
    def scales(self) -> bool:
        """Whether gradients may overflow only because the loss is scaled. The next step then scales it less."""
        return self.scaler.is_enabled() and self.scaler.get_scale() > 1


def _step_on_device(optimizer: Optimizer, norm: Tensor) -> None:
    """Takes the step of a fused optimizer. Its kernels change nothing if `norm` is not finite."""
    # GradScaler passes these attributes to fused optimizers.
    vars(optimizer)["grad_scale"] = None
    vars(optimizer)["found_inf"] = norm.isfinite().logical_not().float()
    try:
        optimizer.step()
    finally:
        del vars(optimizer)["grad_scale"], vars(optimizer)["found_inf"]


def _resolve(wanted: str, device: torch.device) -> str:
    if wanted != "auto":
        return wanted
    return "bf16" if accelerator.computes_bf16(device) else "fp32"
