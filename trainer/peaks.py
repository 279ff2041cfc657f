"""The peak arithmetic of known GPUs, and the share of it that a run's model uses."""

from typing import NamedTuple

PASSES = 3
"""A training step counts as three forward passes: a backward pass has twice the products of a forward pass."""


class Peak(NamedTuple):
    """Floating-point operations a second that the maker states, in units of 10^12, without sparsity."""

    half: float
    """With fp16 and bf16, on tensor cores."""
    single: float
    """With TF32 on tensor cores; with fp32 where there is no TF32."""
    bf16: bool = True


_V100, _V100_PCIE = Peak(125, 15.7, bf16=False), Peak(112, 14, bf16=False)
_A100, _H100 = Peak(312, 156), Peak(989.4, 494.7)
# NVIDIA's data sheets of these products. Where one gives figures with sparsity alone, the half of them.
_PEAKS = {
    "Tesla T4": Peak(65, 8.1, bf16=False),
    "Tesla V100-SXM2-16GB": _V100,
    "Tesla V100-SXM2-32GB": _V100,
    "Tesla V100-PCIE-16GB": _V100_PCIE,
    "Tesla V100-PCIE-32GB": _V100_PCIE,
    "NVIDIA A10": Peak(125, 62.5),
    "NVIDIA A30": Peak(165, 82),
    "NVIDIA A40": Peak(149.7, 74.8),
    "NVIDIA A100-PCIE-40GB": _A100,
    "NVIDIA A100 80GB PCIe": _A100,
    "NVIDIA A100-SXM4-40GB": _A100,
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA L4": Peak(121, 60),
    "NVIDIA L40": Peak(181.05, 90.5),
    "NVIDIA L40S": Peak(362.05, 183),
    "NVIDIA H100 PCIe": Peak(756.5, 378),
    "NVIDIA H100 NVL": Peak(835.5, 417.5),
    "NVIDIA H100 80GB HBM3": _H100,
    "NVIDIA H200": _H100,
}
"""By the whole name that the driver gives: a part of a GPU (MIG) has another one."""


def peak_flops(device: str, *, precision: str) -> float | None:
    """Returns the peak of the device of that name in `fp32`, `bf16` or `fp16`, in operations a second; None if unknown.

    The name is that of `trainer.card.Card.device`.
    """
    peak = _PEAKS.get(device)
    if peak is None or (precision == "bf16" and not peak.bf16):
        return None
    return (peak.single if precision == "fp32" else peak.half) * 1e12


def utilisation(*, flops: int | None, samples_per_second: float, peak: float | None) -> float | None:
    """Returns the share of `peak` that the model's products use (MFU), of `flops` in a forward pass of a sample."""
    return None if flops is None or peak is None else PASSES * flops * samples_per_second / peak
