"""An error that says that memory is short is recognized by its class, and torch's own also by their texts."""

import errno
from typing import Literal

import pytest
import torch
import torch.distributed

from torchyard.contract.errors import DataError
from torchyard.run.outofmemory import short_memory

NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (MemoryError(), "host"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "host"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: x"), "host"),
        (RuntimeError("unable to mmap 4096 bytes from file <a>: Cannot allocate memory (12)"), "host"),
        (RuntimeError("std::bad_alloc"), "host"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), "device"),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"), "device"),
        (torch.AcceleratorError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"), "device"),
        (RuntimeError("CUDA driver error: out of memory"), "device"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "device"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "device"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "device"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), "device"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"), "host"),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), "device"),
        (torch.distributed.DistBackendError(f"{NCCL}Last error:\nCuda failure 2 'out of memory'"), "device"),
        (torch.distributed.DistBackendError(f"{NCCL}Last error:\nFailed to CUDA calloc async 608 bytes"), "device"),
    ],
    ids=str,
)
def test_a_shortage_is_recognized(error: BaseException, whose: Literal["host", "device"]) -> None:
    assert short_memory(error) == whose


class OutOfMemoryError(RuntimeError):
    """A program's own, of the same name."""


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("CUDA out of memory"),
        ValueError("CUDA out of memory"),
        DataError("CUDA error: out of memory"),
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("FIND was unable to find an engine to execute this computation"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"),
        RuntimeError("the tensor is out of memory order"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        torch.distributed.DistBackendError(f"{NCCL}Last error:\nCuda failure 700 'an illegal memory access'"),
        torch.distributed.DistBackendError("Watchdog caught collective operation timeout"),
    ],
    ids=str,
)
def test_other_errors_are_none(error: BaseException) -> None:
    assert short_memory(error) is None
