"""Which devices a job could get."""

from collections.abc import Sequence

from torchyard.contract.spec import Resources
from torchyard.contract.views import DeviceView

_GIB = 1 << 30


def suitable(resources: Resources, devices: Sequence[DeviceView]) -> list[DeviceView]:
    """Returns the devices of the kind and memory that the job asks for. `auto` means CUDA if there is any GPU."""
    kind = resources.device
    if kind == "auto":
        kind = "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"
    least = (resources.min_memory_gb or 0) * _GIB
    return [device for device in devices if device.kind == kind and (not least or (device.memory_bytes or 0) >= least)]
