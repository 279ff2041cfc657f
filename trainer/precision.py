"""Which numbers the forward pass computes in, and what that asks of the optimizer's step."""

from contextlib import nullcontext

import torch
from torch import Tensor, autocast
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

    def step(self, optimizer: Optimizer, *, norm: Tensor, wait: bool) -> bool:
        """The optimizer's step, which a `norm` of the unscaled gradients that is not finite leaves out.

        False where it is known to be left out. With `wait`, and in fp16, that is always known. Without, the device
        decides by itself, and the optimizer must be fused.
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
        """Whether gradients may overflow only because the loss is scaled up, which the next step does less."""
        return self.scaler.is_enabled() and self.scaler.get_scale() > 1


def _step_on_device(optimizer: Optimizer, norm: Tensor) -> None:
    """The step of a fused optimizer, whose kernels change nothing where `norm` is not finite."""
    # These attributes are how GradScaler talks to fused optimizers.
    vars(optimizer)["grad_scale"] = None
    vars(optimizer)["found_inf"] = norm.isfinite().logical_not().float()
    try:
        optimizer.step()
    finally:
        del vars(optimizer)["grad_scale"], vars(optimizer)["found_inf"]


def _resolve(wanted: str, device: torch.device) -> str:
    if wanted != "auto":
        return wanted
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "fp32"
