"""Keeps free GPUs out of use while their memory is not released, or after they have failed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
import time

from torchyard.contract.cluster.devices import DeviceReport

FAULT_QUARANTINE = timedelta(minutes=10)
"""How long a GPU must respond after its fault before it is offered again."""

_GIB = 1 << 30
_SLACK = 1 << 28
"""The memory of a GPU counts as released if it uses at most so many bytes more than before the job."""
_IDLE_USE = 1 << 30
"""If the use before the job is unknown, the memory counts as released if at most so many bytes are in use."""
_RELEASE_S = 60.0
"""For so long after the end of a job, its memory is expected to be released at any moment."""


@dataclass(frozen=True)
class DeviceUse:
    """An attempt of this worker, and its devices by rank. `devices` is None while they are not known yet."""

    job_id: str
    number: int
    devices: tuple[str, ...] | None
    ended: bool
    """Whether all its processes have ended."""
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its devices that failed, as the driver confirmed at its end, and what the driver reported."""


class Quarantine:
    """Only one thread may call it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_use: dict[str, int] = {}
        """Bytes in use when the device was last free."""
        self._unreleased: dict[str, _LastUse] = {}
        """The last job on a device, until its memory was seen to be released."""
        self._faults: dict[str, _Fault] = {}

    def note_use(self, use: DeviceUse) -> None:
        """Remembers that the attempt had its devices, and which of them failed. May be repeated."""
        self._unreleased |= dict.fromkeys(use.devices or (), _LastUse(use.job_id, self._clock()))
        for uuid, description in use.faults.items():
            known = self._faults.get(uuid)
            if known is None or (known.job_id, known.number) != (use.job_id, use.number):
                self._faults[uuid] = self._new_fault(use.job_id, use.number, description)

    def judge(self, views: Sequence[DeviceReport], uses: Iterable[DeviceUse]) -> list[DeviceReport]:
        """Returns `views` with the devices in quarantine blocked. `uses`: the attempts of this worker."""
        held: set[str] = set()
        all_known = True
        for use in uses:
            self.note_use(use)
            all_known &= use.devices is not None
            if not use.ended:
                held |= set(use.devices or ())
        return [
            view if view.kind == "cpu" or view.uuid in held else self._judge_free(view, surely_free=all_known)
            for view in views
        ]

    def _judge_free(self, view: DeviceReport, *, surely_free: bool) -> DeviceReport:
        fault = self._faults.get(view.uuid)
        if view.blocked is not None:
            if fault is not None and view.memory_used_bytes is None:  # it does not respond: its quarantine starts again
                self._faults[view.uuid] = self._new_fault(fault.job_id, fault.number, fault.description)
            return view
        failed, unreleased = self._fault_reason(view, fault), self._unreleased_reason(view)
        if unreleased is not None:
            soon = failed is None and self._clock() < self._unreleased[view.uuid].seen + _RELEASE_S
            return replace(view, blocked=unreleased, returning=soon)
        if failed is not None:
            return replace(view, blocked=failed)
        if surely_free:
            self._free_use[view.uuid] = view.memory_used_bytes or 0
        return view

    def _unreleased_reason(self, view: DeviceReport) -> str | None:
        last = self._unreleased.get(view.uuid)
        if last is None:
            return None
        before, used = self._free_use.get(view.uuid), view.memory_used_bytes or 0
        if used <= (_IDLE_USE if before is None else before + _SLACK):
            del self._unreleased[view.uuid]
            return None
        usual = "" if before is None else f" ({before / _GIB:.1f} GiB before it)"
        return (
            f"GPU {view.index} is in quarantine: {used / _GIB:.1f} GiB are still in use after {last.job_id} ended"
            f"{usual}; checked again every 5 s"
        )

    def _fault_reason(self, view: DeviceReport, fault: "_Fault | None") -> str | None:
        if fault is None:
            return None
        if self._clock() >= fault.until:
            del self._faults[view.uuid]
            return None
        failure = f"it failed under {fault.job_id} ({fault.description})"
        return f"GPU {view.index} is in quarantine until {fault.shown}: {failure}"

    def _new_fault(self, job_id: str, number: int, description: str) -> "_Fault":
        shown = (datetime.now(UTC) + FAULT_QUARANTINE).strftime("%H:%M UTC")
        return _Fault(job_id, number, description, self._clock() + FAULT_QUARANTINE.total_seconds(), shown)


@dataclass(frozen=True)
class _LastUse:
    job_id: str
    seen: float
    """When the job was last known to have the device, by the clock."""


@dataclass(frozen=True)
class _Fault:
    job_id: str
    number: int
    description: str
    until: float
    """The end of the quarantine, by the clock."""
    shown: str
    """The end of the quarantine, for users."""
