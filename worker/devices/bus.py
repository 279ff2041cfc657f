"""Counts the GPUs on the PCI bus of this host, whether or not a driver knows them."""

from pathlib import Path

_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


def count_nvidia_gpus(devices: Path = _DEVICES) -> int:
    """Returns the number of NVIDIA GPUs among the `devices` of the bus."""
    count = 0
    for device in devices.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        count += vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)
    return count
