"""Reads a GPU's health from the driver, to confirm a device fault that an attempt reports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
import threading
from typing import Any

import pynvml

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.devices.inventory import Nvml, query

FAULT_XIDS = frozenset({48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140})
"""NVIDIA's error numbers (XID) of the memory, the links, the bus and the GPU's own controllers. A program itself can
cause the others, such as 13, 31, 43 and 45."""

_MAX_EVENTS = 1000
"""Events that one read takes from the driver."""


@dataclass(frozen=True)
class GpuHealth:
    """The state of a GPU at one moment, as the driver reports it."""

    responds: bool = True
    uncorrected_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded. None if the GPU does not report them."""
    repair_pending: bool = False
    """Whether rows or pages of its memory wait to be replaced."""
    repair_failed: bool = False
    """Whether the replacement of a row has failed."""
    fault_xids: tuple[int, ...] = ()
    """The events among `FAULT_XIDS` that this worker has received."""


@dataclass(frozen=True)
class Verdict:
    """An attempt's report after the check, and the GPUs that failed, each with what the driver reports."""

    report: ExitReport
    faults: Mapping[str, str] = field(default_factory=dict[str, str])


class Health:
    """Any thread may call it. Without `nvml`, no fault is ever confirmed."""

    def __init__(self, nvml: Nvml | None = None, uuids: Iterable[str] = ()) -> None:
        """`uuids`: the GPUs whose critical events it receives from now on."""
        self._nvml = nvml
        self._lock = threading.Lock()
        self._xids: dict[str, tuple[int, ...]] = {}
        self._event_sets = {uuid: self._listen(nvml, uuid) for uuid in uuids} if nvml is not None else {}

    def read(self, devices: Iterable[str], *, adopted: bool = False) -> dict[str, GpuHealth]:
        """Returns the health of the GPUs among `devices`, before an attempt starts on them.

        `adopted`: the attempt has started already. Then its GPUs are assumed to have been healthy at its start, and
        only counters begin at their present values.
        """
        if self._nvml is None:
            return {}
        by_uuid = {uuid: self._read_gpu(self._nvml, uuid) for uuid in devices if not uuid.startswith("cpu-")}
        if not adopted:
            return by_uuid
        return {
            uuid: GpuHealth(uncorrected_errors=now.uncorrected_errors, fault_xids=now.fault_xids)
            for uuid, now in by_uuid.items()
        }

    def judge(self, report: ExitReport, *, since: Mapping[str, GpuHealth]) -> Verdict:
        """Checks a report. A device fault that no GPU confirms is an error of the program, and counts as a restart.

        `since`: what `read` returned when the attempt started.
        """
        if report.reason is not EndReason.DEVICE_FAULT:
            return Verdict(report)
        now = self.read(since)
        changes = {uuid: _describe_fault(before, now[uuid]) for uuid, before in since.items() if uuid in now}
        faults = {uuid: fault for uuid, fault in changes.items() if fault is not None}
        return Verdict(report, faults) if faults else Verdict(_unconfirmed(report))

    def _listen(self, nvml: Nvml, uuid: str) -> Any:
        """Returns the event set of one GPU, or None if the driver offers none for it."""

        def register() -> Any:
            events = nvml.nvmlEventSetCreate()
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            return events

        return query(nvml, register, None)

    def _read_gpu(self, nvml: Nvml, uuid: str) -> GpuHealth:
        with self._lock:
            fault_xids = self._receive_fault_xids(nvml, uuid)
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:
            return GpuHealth(responds=False, fault_xids=fault_xids)
        rows = query(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
        pages = query(nvml, lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle), 0)
        return GpuHealth(
            uncorrected_errors=query(nvml, lambda: _uncorrected_errors(nvml, handle), None),
            repair_pending=bool(rows[2] or pages),
            repair_failed=bool(rows[3]),
            fault_xids=fault_xids,
        )

    def _receive_fault_xids(self, nvml: Nvml, uuid: str) -> tuple[int, ...]:
        events = self._event_sets.get(uuid)
        if events is None:
            return ()
        for _ in range(_MAX_EVENTS):
            xid = query(nvml, lambda: int(nvml.nvmlEventSetWait_v2(events, 0).eventData), None)
            if xid is None:  # there are no more events
                break
            if xid in FAULT_XIDS:
                self._xids[uuid] = (*self._xids.get(uuid, ()), xid)
        return self._xids.get(uuid, ())


def _describe_fault(before: GpuHealth, now: GpuHealth) -> str | None:
    """Describes what has happened to a GPU. Contains no text of the job: other users may read it."""
    if before.responds and not now.responds:
        return "it does not respond"
    if len(now.fault_xids) > len(before.fault_xids):
        return f"the driver reported XID {now.fault_xids[-1]}"
    if now.uncorrected_errors is not None and before.uncorrected_errors is not None:
        new_errors = now.uncorrected_errors - before.uncorrected_errors
        if new_errors > 0:
            return f"uncorrected ECC errors: {new_errors}"
    if now.repair_failed and not before.repair_failed:
        return "a row of its memory could not be replaced"
    return "a part of its memory waits to be replaced" if now.repair_pending and not before.repair_pending else None


def _unconfirmed(report: ExitReport) -> ExitReport:
    killed = report.exit_code is not None and report.exit_code < 0
    message = f"{report.message} (the driver confirms no GPU fault)"
    return replace(report, reason=EndReason.KILLED if killed else EndReason.USER_ERROR, message=message)


def _uncorrected_errors(nvml: Nvml, handle: Any) -> int:
    return int(
        nvml.nvmlDeviceGetTotalEccErrors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    )
