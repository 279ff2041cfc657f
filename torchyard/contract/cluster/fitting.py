"""Which devices a job could get, and whether a host has enough beside its other jobs."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
import re
from typing import Literal, Protocol, TypeVar

from torchyard.contract.spec.resources import Resources

_GIB = 1 << 30
_ROUNDING = 1e-6
"""What sums of shares such as 0.1 may be off."""


class _Device(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Literal["cuda", "cpu"]: ...
    @property
    def memory_bytes(self) -> int | None: ...


DeviceT = TypeVar("DeviceT", bound=_Device)


def suitable(resources: Resources, devices: Sequence[DeviceT]) -> list[DeviceT]:
    """Returns the devices of the kind, name and memory that the job asks for. `auto` means CUDA if there is any GPU."""
    kind = resources.device
    if kind == "auto":
        kind = "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"
    least = (resources.min_memory_gb or 0) * _GIB
    found = [device for device in devices if device.kind == kind and (not least or (device.memory_bytes or 0) >= least)]
    names = resources.gpu
    if names is None:
        return found
    return [device for device in found if any(is_named(device.name, wanted) for wanted in names)]


def is_named(name: str, wanted: str) -> bool:
    """Returns whether the `wanted` name is that of a GPU which its driver calls `name`.

    It is if all its words are among those of `name`: `A100-80GB` and `a100` both are NVIDIA A100-SXM4-80GB.
    """
    return _words(wanted) <= _words(name)


def fits_beside(wanted: float | None, held: Iterable[float | None], offered: float | None) -> bool:
    """Returns whether a host that offers so many CPUs, or so much memory, to its jobs has enough beside those `held`.

    A host of which it is not known has nothing. None of the others: a job that asks for none, and holds none.
    """
    if wanted is None:
        return True
    return offered is not None and wanted + sum(one or 0 for one in held) <= offered + _ROUNDING


@lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall("[A-Z0-9]+", name.upper()))
