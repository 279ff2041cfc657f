"""Recognizes an error that says that memory is short. It does not import torch."""

import errno
import re
from typing import Literal

_HOST = re.compile(r"can't allocate memory|Cannot allocate memory|std::bad_alloc|_HOST_ALLOCATION_FAILED\b", re.ASCII)
_DEVICE = re.compile(
    r"\b(?:CUDA|HIP)\b.{0,40}\bout of memory\b"  # the driver, the allocator, Triton; NCCL: Cuda failure 2 '…'
    r"|\bCU[A-Z]+_(?:STATUS_)?ALLOC_FAILED\b"  # cuBLAS, cuDNN 8, cuSOLVER, cuSPARSE, cuFFT
    r"|\bCUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\b"
    r"|\bFailed to CUDA [a-z ]{0,20}(?:malloc|calloc)\b",  # NCCL, after an allocation that gave it nothing
    re.ASCII | re.IGNORECASE,
)
"""Not cuDNN's `unable to find an engine`: it is said of shapes that no engine takes, too."""


def short_memory(error: BaseException) -> Literal["host", "device"] | None:
    """Returns whose memory is too small, if that is what `error` says. None for every other error.

    A text counts in torch's own errors only: a class of the program's own says what the program means.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "host"
    torchs = {base.__name__ for base in type(error).__mro__ if base.__module__.split(".")[0] == "torch"}
    if "OutOfMemoryError" in torchs:
        return "device"
    if type(error) is not RuntimeError and not torchs:  # C++ raises a plain RuntimeError
        return None
    text = "\n".join(part for part in error.args if isinstance(part, str))  # a `__str__` of the program may raise
    if _DEVICE.search(text):
        return "device"
    return "host" if _HOST.search(text) else None
