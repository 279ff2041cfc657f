"""Recognizes the messages about a broken device or a lost peer, as opposed to a broken program."""

import re

_REPORTER = re.compile(r"\bCUDA|Cuda failure|NCCL|cudaGetDeviceCount|NVML", re.ASCII)
"""Who reports faults. Without one of these names, a message is a program's own."""
_FAULT = re.compile(
    r"uncorrectable (?:ECC|NVLink) error"
    r"|hardware stack error"
    r"|Invalid access of peer GPU memory over nvlink or a hardware error"
    r"|(?:CUDA-capable device\(s\) is/are|all CUDA-capable devices are) busy or unavailable"
    r"|system not yet initialized"
    r"|system has unsupported display driver / cuda driver combination"
    r"|Driver/library version mismatch"
    r"|GPU is lost"
    r"|fallen off the bus"
    r"|GPU requires (?:a )?reset",
    re.IGNORECASE,
)
_LOST_PEER = re.compile(
    r"Dist(Network|Backend|Store)Error|Connection (closed|reset|refused)|Broken pipe|NCCL error|gloo/transport|TCPStore"
)


def device_fault(text: str) -> str | None:
    """Returns the line of `text` that reports a fault of a GPU, its links or its driver. None if there is none.

    Errors that a program can cause (an illegal address, a failed assertion, a failed launch) are not faults. The line
    proves nothing, as any program can print it: the worker asks the driver before it believes it.
    """
    found = _FAULT.search(text) if _REPORTER.search(text) is not None else None
    if found is None:
        return None
    start = text.rfind("\n", 0, found.start()) + 1
    return text[start:].partition("\n")[0].strip()


def is_lost_peer(text: str) -> bool:
    """Returns whether it is the error of a rank that lost its peer. Such an error is seldom the cause."""
    return _LOST_PEER.search(text) is not None
