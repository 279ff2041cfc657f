"""GPUs that no job holds and that are not offered yet: their memory is not back, or they have just failed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
import time

from torchyard.contract.views import DeviceView

HEALTHY = timedelta(minutes=10)
"""How long a GPU must have answered since its fault."""

_GIB = 1 << 30
_SLACK = 1 << 28
"""Bytes in use by which a GPU may differ from before the job and still count as released."""
_IDLE = 1 << 30
"""Bytes in use that are nobody's, where it is not known how it was before the job."""
_RETURN_S = 60.0
"""How long after the end of a job its memory is expected back any moment."""


@dataclass(frozen=True)
class Use:
    """An attempt of this worker and its devices, by rank; None while these are not known yet."""

    job_id: str
    number: int
    devices: tuple[str, ...] | None
    over: bool
    """Whether none of its processes runs any more."""
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its devices that failed, as the driver confirmed at its end, and what the driver said."""


class Quarantine:
    """Looks at each observation of the devices, in one thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offered: dict[str, int] = {}
        """Bytes in use when the device was last free."""
        self._unconfirmed: dict[str, _Last] = {}
        """The last job on a device, until its memory is seen to be back."""
        self._faults: dict[str, _Fault] = {}

    def note(self, use: Use) -> None:
        """Remembers that the attempt had its devices, and which of them failed. The same may be noted again."""
        self._unconfirmed |= dict.fromkeys(use.devices or (), _Last(use.job_id, self._clock()))
        for uuid, what in use.faults.items():
            known = self._faults.get(uuid)
            if known is None or (known.job_id, known.number) != (use.job_id, use.number):
                self._faults[uuid] = self._fault(use.job_id, use.number, what)

    def judge(self, views: Sequence[DeviceView], uses: Iterable[Use]) -> list[DeviceView]:
        """`views` with who may not have one and why. `uses`: the attempts of now."""
        held: set[str] = set()
        all_known = True
        for use in uses:
            self.note(use)
            all_known &= use.devices is not None
            if not use.over:
                held |= set(use.devices or ())
        return [
            view if view.kind == "cpu" or view.uuid in held else self._judged(view, surely_free=all_known)
            for view in views
        ]

    def _judged(self, view: DeviceView, *, surely_free: bool) -> DeviceView:
        fault = self._faults.get(view.uuid)
        if view.blocked is not None:
            if fault is not None and view.memory_used_bytes is None:  # it does not answer: its time begins anew
                self._faults[view.uuid] = self._fault(fault.job_id, fault.number, fault.kind)
            return view
        failed, unreleased = self._failed(view, fault), self._unreleased(view)
        if unreleased is not None:
            soon = failed is None and self._clock() < self._unconfirmed[view.uuid].seen + _RETURN_S
            return view.model_copy(update={"blocked": unreleased, "returning": soon})
        if failed is not None:
            return view.model_copy(update={"blocked": failed})
        if surely_free:
            self._offered[view.uuid] = view.memory_used_bytes or 0
        return view

    def _unreleased(self, view: DeviceView) -> str | None:
        last = self._unconfirmed.get(view.uuid)
        if last is None:
            return None
        before, used = self._offered.get(view.uuid), view.memory_used_bytes or 0
        if used <= (_IDLE if before is None else before + _SLACK):
            del self._unconfirmed[view.uuid]
            return None
        usual = "" if before is None else f" ({before / _GIB:.1f} GiB before it)"
        return (
            f"GPU {view.index} is in quarantine: {used / _GIB:.1f} GiB are still in use after {last.job_id} ended"
            f"{usual}; looked at again every 5 s"
        )

    def _failed(self, view: DeviceView, fault: "_Fault | None") -> str | None:
        if fault is None:
            return None
        if self._clock() >= fault.until:
            del self._faults[view.uuid]
            return None
        return f"GPU {view.index} is in quarantine until {fault.shown}: {fault.job_id} met a fault on it ({fault.kind})"

    def _fault(self, job_id: str, number: int, kind: str) -> "_Fault":
        shown = (datetime.now(UTC) + HEALTHY).strftime("%H:%M UTC")
        return _Fault(job_id, number, kind, self._clock() + HEALTHY.total_seconds(), shown)


@dataclass(frozen=True)
class _Last:
    job_id: str
    seen: float
    """When it was last known to have the device, by the clock."""


@dataclass(frozen=True)
class _Fault:
    job_id: str
    number: int
    kind: str
    until: float
    shown: str
