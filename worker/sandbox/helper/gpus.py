"""The device nodes of GPUs, by UUID, as the NVIDIA driver lists them."""

from collections.abc import Sequence
from pathlib import Path
import re

from worker.sandbox.strict.protocol import Refusal

_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_UUID = re.compile(r"^GPU UUID:\s+(\S+)$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s+(\d+)$", re.MULTILINE)


def device_nodes(
    uuids: Sequence[str], *, driver: Path = Path("/proc/driver/nvidia/gpus"), folder: Path = Path("/dev")
) -> list[str]:
    """Returns the nodes of these GPUs, and those that every GPU needs. Raises Refusal for a GPU that is not here."""
    if not uuids:
        return []
    minors = _minors(driver)
    for uuid in uuids:
        if uuid not in minors:
            raise Refusal(f"this host's driver lists no GPU {uuid}; strict isolation needs whole GPUs, not parts (MIG)")
    nodes = [folder / f"nvidia{minors[uuid]}" for uuid in uuids]
    return [str(path) for path in (*nodes, *(folder / name for name in _COMMON)) if path.exists()]


def _minors(driver: Path) -> dict[str, int]:
    minors: dict[str, int] = {}
    for file in driver.glob("*/information"):
        text = file.read_text()
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid is not None and minor is not None:
            minors[uuid[1]] = int(minor[1])
    return minors
