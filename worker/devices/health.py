"""What the driver says of a GPU's health: the evidence for a fault that an attempt's report claims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
import threading
from typing import Any

import pynvml

from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.devices.inventory import Nvml, ask

FAULT_XIDS = frozenset({48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140})
"""NVIDIA's numbers of errors of the memory, the links, the bus or the GPU's own controllers. Others, such as 13, 31, 43
and 45, a program can bring about itself."""

_EVENTS_AT_ONCE = 1000


@dataclass(frozen=True)
class Marks:
    """What a GPU said of itself at one moment."""

    answers: bool = True
    uncorrected: int | None = None
    """Uncorrected memory errors since its driver was loaded; None where it does not tell."""
    pending: bool = False
    """Whether rows or pages of its memory wait to be replaced."""
    unrepaired: bool = False
    """Whether the replacement of a row has failed."""
    xids: tuple[int, ...] = ()
    """Of `FAULT_XIDS`, those that this worker has heard of."""


@dataclass(frozen=True)
class Verdict:
    """The report as it is believed, and each GPU that failed with what the driver says of it."""

    report: ExitReport
    faults: Mapping[str, str] = field(default_factory=dict[str, str])


class Health:
    """Asks the driver. Any thread may call it. Without `nvml` no fault is ever confirmed."""

    def __init__(self, nvml: Nvml | None = None, uuids: Iterable[str] = ()) -> None:
        """`uuids`: the GPUs whose critical events are listened to from now on."""
        self._nvml = nvml
        self._lock = threading.Lock()
        self._xids: dict[str, tuple[int, ...]] = {}
        self._event_sets = {uuid: self._listen(nvml, uuid) for uuid in uuids} if nvml is not None else {}

    def marks(self, devices: Iterable[str], *, adopted: bool = False) -> dict[str, Marks]:
        """What the GPUs among `devices` say before an attempt starts. Of one that is `adopted`, nobody knows what they
        said then: they are taken to have been well, but for what is only counted."""
        if self._nvml is None:
            return {}
        found = {uuid: self._look(self._nvml, uuid) for uuid in devices if not uuid.startswith("cpu-")}
        if not adopted:
            return found
        return {uuid: Marks(uncorrected=now.uncorrected, xids=now.xids) for uuid, now in found.items()}

    def judge(self, report: ExitReport, *, since: Mapping[str, Marks]) -> Verdict:
        """What is believed of `report`. A device fault that no GPU confirms is the program's own error, and counts.

        `since`: the `marks` of the attempt's devices from when it started.
        """
        if report.reason is not EndReason.DEVICE_FAULT:
            return Verdict(report)
        now = self.marks(since)
        said = {uuid: _worse(before, now[uuid]) for uuid, before in since.items() if uuid in now}
        faults = {uuid: what for uuid, what in said.items() if what is not None}
        return Verdict(report, faults) if faults else Verdict(_unconfirmed(report))

    def _listen(self, nvml: Nvml, uuid: str) -> Any:
        """The event set of one GPU; None where the driver has none for it."""

        def register() -> Any:
            events = nvml.nvmlEventSetCreate()
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            return events

        return ask(nvml, register, None)

    def _look(self, nvml: Nvml, uuid: str) -> Marks:
        with self._lock:
            xids = self._heard(nvml, uuid)
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:
            return Marks(answers=False, xids=xids)
        rows = ask(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
        pages = ask(nvml, lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle), 0)
        return Marks(
            uncorrected=ask(nvml, lambda: _uncorrected(nvml, handle), None),
            pending=bool(rows[2] or pages),
            unrepaired=bool(rows[3]),
            xids=xids,
        )

    def _heard(self, nvml: Nvml, uuid: str) -> tuple[int, ...]:
        events = self._event_sets.get(uuid)
        if events is None:
            return ()
        for _ in range(_EVENTS_AT_ONCE):
            xid = ask(nvml, lambda: int(nvml.nvmlEventSetWait_v2(events, 0).eventData), None)
            if xid is None:  # the driver has no more
                break
            if xid in FAULT_XIDS:
                self._xids[uuid] = (*self._xids.get(uuid, ()), xid)
        return self._xids.get(uuid, ())


def _worse(before: Marks, now: Marks) -> str | None:
    """What has happened to a GPU, in words of which a job has chosen none: other users may read them."""
    if before.answers and not now.answers:
        return "it does not answer"
    if len(now.xids) > len(before.xids):
        return f"the driver reported XID {now.xids[-1]}"
    if now.uncorrected is not None and before.uncorrected is not None and now.uncorrected > before.uncorrected:
        return f"uncorrected ECC errors: {now.uncorrected - before.uncorrected}"
    if now.unrepaired and not before.unrepaired:
        return "a row of its memory could not be replaced"
    return "a part of its memory waits to be replaced" if now.pending and not before.pending else None


def _unconfirmed(report: ExitReport) -> ExitReport:
    killed = report.exit_code is not None and report.exit_code < 0
    message = f"{report.message} (the driver confirms no fault of a GPU)"
    return replace(report, reason=EndReason.KILLED if killed else EndReason.USER_ERROR, message=message)


def _uncorrected(nvml: Nvml, handle: Any) -> int:
    return int(
        nvml.nvmlDeviceGetTotalEccErrors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )
