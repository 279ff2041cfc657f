"""Which numbers the forward pass computes in, and what that asks of the optimizer's step."""

from contextlib import nullcontext

import torch
from torch import autocast
from torch.amp import GradScaler
from torch.optim import Optimizer

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """`bf16`, `fp16` or `fp32`; `auto` is bf16 on a GPU that has it, else fp32.

    fp16 scales the loss, so that small gradients do not vanish, and asks the device after each step whether they
    overflowed: it alone waits for the device.
    """

    def __init__(self, wanted: str, device: torch.device) -> None:
        self.name = _resolve(wanted, device)
        self.scaler = GradScaler(device.type, enabled=self.name == "fp16")
        self._device = device

    def autocast(self) -> autocast | nullcontext[None]:
        """Around a forward pass in training and its loss."""
        dtype = _DTYPES.get(self.name)
        return nullcontext() if dtype is None else autocast(self._device.type, dtype=dtype)

    def step(self, optimizer: Optimizer) -> bool:
        """The optimizer's step; False where it was skipped, as the gradients overflowed."""
        if not self.scaler.is_enabled():
            optimizer.step()
            return True
        scale = self.scaler.get_scale()
        self.scaler.step(optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= scale


def _resolve(wanted: str, device: torch.device) -> str:
    if wanted != "auto":
        return wanted
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"
