"""The devices of one attempt: whether one of them failed, and whether ranks hold memory on those of others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import time

from torchyard.contract.attempts.records import ExitReport
from worker.attempts.notices import Notices
from worker.devices.health import GpuHealth, Health
from worker.devices.quarantine import DeviceUse
from worker.engines.base import Engine, Handle, StrayMemory
from worker.host.attempt_key import AttemptKey

LOOK_EVERY_S = 30.0
_GIB = 1 << 30


class AttemptDevices:
    """`use` is for the quarantine. The object is replaced, never changed, as other threads read it."""

    def __init__(self, key: AttemptKey, health: Health) -> None:
        self.use = DeviceUse(key.job_id, key.number, None, ended=False)
        self._health = health
        self._at_start: Mapping[str, GpuHealth] = {}

    def begin(self, devices: Sequence[str], *, adopted: bool) -> None:
        """Notes the devices (UUIDs) and their health. `adopted`: an earlier daemon has started the attempt."""
        uuids = tuple(devices)
        self.use = replace(self.use, devices=uuids)
        self._at_start = self._health.read(uuids, adopted=adopted)

    def end(self, report: ExitReport) -> ExitReport:
        """Returns the report, corrected by what the driver says of its GPUs. The devices may be in quarantine then."""
        verdict = self._health.judge(report, since=self._at_start)
        self.use = replace(self.use, ended=True, faults=verdict.faults)
        return verdict.report


class StrayMemoryWatch:
    """Watches one attempt. `devices`: their UUIDs, by rank."""

    def __init__(self, engine: Engine, notices: Notices, devices: Sequence[str]) -> None:
        self._engine = engine
        self._notices = notices
        self._devices = devices
        self._found: Sequence[StrayMemory] = ()
        self._warned: set[tuple[int, int]] = set()
        self._next_look = 0.0

    def look(self, handle: Handle) -> None:
        """Asks the driver, now and then. Only the thread of the observation calls it: the driver may hang."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_EVERY_S
        self._found = self._engine.stray_memory(handle, self._devices)

    def tell(self) -> None:
        """Warns once of each rank and device that was found. Raises what `Notices.send` raises."""
        for stray in self._found:
            if (stray.rank, stray.device_of) not in self._warned:
                self._warned.add((stray.rank, stray.device_of))
                self._notices.send(_warning(stray))


def _warning(stray: StrayMemory) -> str:
    size = f"{stray.memory_bytes / _GIB:.1f} GiB" if stray.memory_bytes else "memory"
    return (
        f"rank {stray.rank} holds {size} on the GPU of rank {stray.device_of}, beside its own: have it call "
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything uses CUDA, and give torch.load a "
        "map_location"
    )
