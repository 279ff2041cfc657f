"""Warns a job's owner of ranks that hold memory on the devices of others."""

from collections.abc import Sequence
import time

from worker.attempts.notices import Notices
from worker.engines.base import Engine, Handle, StrayMemory

LOOK_EVERY_S = 30.0
_GIB = 1 << 30


class StrayMemoryWatch:
    """Watches one attempt. `devices`: their UUIDs, by rank."""

    def __init__(self, engine: Engine, notices: Notices, devices: Sequence[str]) -> None:
        self._engine = engine
        self._notices = notices
        self._devices = devices
        self._found: Sequence[StrayMemory] = ()
        self._told: set[tuple[int, int]] = set()
        self._next_look = 0.0

    def look(self, handle: Handle) -> None:
        """Asks the driver, now and then. Only the thread of the observation calls it: the driver may hang."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_EVERY_S
        self._found = self._engine.stray_memory(handle, self._devices)

    def tell(self) -> None:
        """Warns once of each rank and device that was found. Raises what `Notices.send` raises."""
        for found in self._found:
            if (found.rank, found.device_of) not in self._told:
                self._told.add((found.rank, found.device_of))
                self._notices.send(_warning(found))


def _warning(found: StrayMemory) -> str:
    size = f"{found.memory_bytes / _GIB:.1f} GiB" if found.memory_bytes else "memory"
    return (
        f"rank {found.rank} holds {size} on the GPU of rank {found.device_of}, beside its own: have it call "
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything uses CUDA, and give torch.load a "
        "map_location"
    )
