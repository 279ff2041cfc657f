"""Evidence of a chaos run after the recovery, and the violations that it shows."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos import estimates, job_history, job_processes, receiver
from tests.chaos.deployment import Deployment
from tests.chaos.experiments import Experiments
from tests.chaos.faults import InjectedFaults
from tests.chaos.job_history import JobHistory
from tests.chaos.jobs import ChaosJob, Kind
from tests.chaos.monitor import Monitor
from torchyard.client import Client

_ORPHANS_S = 45.0
"""A worker that was stopped longer than its lease ends its attempts after it continues."""
_TELLS_S = 240.0
"""A message that a killed controller was sending waits for the end of its lease, and a refused one comes again."""


@dataclass(frozen=True)
class Evidence:
    deployment: Deployment
    client: Client
    chaos_jobs: Sequence[ChaosJob]
    unexpected_errors: Collection[str]
    references: Mapping[Kind, JobHistory]
    injected: InjectedFaults
    monitor: Monitor
    experiments: Experiments

    def violations(self) -> list[str]:
        """Returns a sentence for each violation. Waits for processes that are about to end."""
        return [
            *sorted(self.monitor.double_booked),
            *sorted(self.unexpected_errors),
            *self._lost_or_doubled(),
            *self._still_held(),
            *self._orphans(),
            *self._of_each_job(),
            *self._untold(),
            *self.experiments.violations(),
            *estimates.violations(self.deployment),
        ]

    def _of_each_job(self) -> list[str]:
        found: list[str] = []
        histories: dict[str, JobHistory] = {}
        for chaos_job in self.chaos_jobs:
            if not chaos_job.over:
                found.append(f"{chaos_job.job_id}: is {chaos_job.state} long after all has healed")
                continue
            history = histories[chaos_job.job_id] = job_history.read(self.client, chaos_job.job_id)
            reference = self.references[chaos_job.kind]
            found += job_history.violations(
                history, ends=chaos_job.ends, reference=reference, damaged=self.injected.damaged
            )
        for job_id, earlier, later in sorted(self.monitor.overlapping):
            if job_id in histories:
                found += job_history.overlapping(histories[job_id], earlier, later)
        return found

    def _lost_or_doubled(self) -> list[str]:
        undisturbed = [history.job.id for history in self.references.values()]
        accepted = Counter([*(chaos_job.job_id for chaos_job in self.chaos_jobs), *undisturbed])
        listed = Counter(job.id for job in self.client.jobs.list() if job.sweep is None and job.schedule_id is None)
        lost = [f"{job_id}: was accepted and is not listed" for job_id in accepted - listed]
        return lost + [f"{job_id}: was not accepted, or not so often, and is listed" for job_id in listed - accepted]

    def _still_held(self) -> list[str]:
        """Returns a sentence for each device that an ended job holds."""
        return [
            f"{device.uuid} of {worker.id} is held by {device.job_id}, which has ended"
            for worker in self.client.workers.list()
            for device in worker.devices
            if device.job_id is not None and self.client.get(device.job_id).state.terminal
        ]

    def _untold(self) -> list[str]:
        """Returns a sentence for each end of a job that was not told as one message, and for each wrong message."""
        self.deployment.keep_alive_until(lambda: receiver.is_settled(self.client), within=_TELLS_S, every=0.5)
        ended = {chaos_job.job_id for chaos_job in self.chaos_jobs if chaos_job.over}
        ended |= {history.job.id for history in self.references.values()} | self.experiments.told()
        told, digested = receiver.messages(self.client), receiver.in_digests(self.client)
        return receiver.violations(self.deployment.receiver, told, ended, digested=digested)

    def _orphans(self) -> list[str]:
        ended = [chaos_job.job_id for chaos_job in self.chaos_jobs if chaos_job.over]
        self.deployment.keep_alive_until(lambda: not job_processes.find(ended), within=_ORPHANS_S)
        return [
            f"{process.job_id}: {process.role} of attempt {process.attempt} (pid {process.pid}) still runs"
            for process in job_processes.find(ended)
        ]
