"""The devices of one attempt, and whether one of them failed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchyard.contract.records import ExitReport
from worker.devices.health import GpuHealth, Health
from worker.devices.quarantine import DeviceUse
from worker.host.attempt_key import AttemptKey


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
