"""Which devices a job could get."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

from torchyard.contract.spec import Resources

_GIB = 1 << 30


class _Device(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Literal["cuda", "cpu"]: ...
    @property
    def memory_bytes(self) -> int | None: ...


DeviceT = TypeVar("DeviceT", bound=_Device)


def suitable(resources: Resources, devices: Sequence[DeviceT]) -> list[DeviceT]:
    """Returns the devices of the kind, memory and names that the job asks for. `auto`: CUDA if there is any GPU."""
    kind = resources.device
    if kind == "auto":
        kind = "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"
    least = (resources.min_memory_gb or 0) * _GIB
    return [
        device
        for device in devices
        if device.kind == kind
        and (not least or (device.memory_bytes or 0) >= least)
        and (resources.gpu is None or any(is_named(device.name, wanted) for wanted in resources.gpu))
    ]


def is_named(name: str, wanted: str) -> bool:
    """Returns whether a GPU of NVML's `name` is meant: `A100-80GB` is each whose name has both words."""
    return _words(wanted) <= _words(name)


def _words(name: str) -> set[str]:
    return {*name.casefold().replace("-", " ").split()}
