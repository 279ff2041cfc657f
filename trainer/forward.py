"""Measures a forward pass in evaluation mode: its operations and its time."""

from collections.abc import Generator
from contextlib import contextmanager
from copy import deepcopy
from statistics import median
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from torchyard.run import accelerator

MOST_PASSES = 5
ENOUGH_SECONDS = 0.05
"""No further pass is timed after so long: a large model may take as long for a single one."""


def flops(model: nn.Module, inputs: Any) -> int:
    """Counts the multiplications and additions of a forward pass of `inputs` in evaluation mode.

    Modes, buffers and the state of torch's generators are unchanged afterwards.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    counter = FlopCounterMode(display=False)
    # Not every fused attention kernel is counted. Plain matrix products are.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with _evaluating(model), sdpa_kernel(SDPBackend.MATH), counter:
            model(inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return counter.get_total_flops()


def flops_without_weights(model: nn.Module, inputs: Any) -> int:
    """Counts as `flops` for a model with parameters on the meta device, of whose tensors the shapes alone are used."""
    sketch = deepcopy(model).to("meta")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:  # unlike those on `meta`, its tensors have a real device
        return flops(sketch.to_empty(device="cpu"), pytree.tree_map_only(Tensor, mode.from_tensor, inputs))


def inference_seconds(model: nn.Module, inputs: Any) -> float:
    """Returns the median time of a forward pass of `inputs` in evaluation mode, by the host's clock.

    Call it after a first pass, such as that of `flops`. Waits for the device. Changes nothing, as `flops`.
    """
    taken: list[float] = []
    with _evaluating(model):
        accelerator.synchronize()
        while len(taken) < MOST_PASSES and sum(taken) < ENOUGH_SECONDS:
            begun = time.perf_counter()
            model(inputs)
            accelerator.synchronize()
            taken.append(time.perf_counter() - begun)
    return median(taken)


@contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    """Sets evaluation mode without gradients. Restores modes and the state of torch's generators."""
    modes = [(module, module.training) for module in model.modules()]
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    devices = [device] if accelerator.is_accelerator(device) else []
    model.eval()
    try:
        with torch.random.fork_rng(devices, device_type=device.type), torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
