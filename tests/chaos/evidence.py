"""All that a chaos run has seen and can still ask for, once everything has healed; and what is wrong with it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos import crew, history
from tests.chaos.history import Story
from tests.chaos.jobs import Errand, Kind
from tests.chaos.nemesis import Deeds
from tests.chaos.watch import Watch
from tests.chaos.yard import Yard
from torchyard.client import Client

_ORPHANS_S = 45.0
"""A worker that was stopped past its lease ends what it still runs once it goes on."""


@dataclass(frozen=True)
class Evidence:
    yard: Yard
    client: Client
    errands: Sequence[Errand]
    complaints: Collection[str]
    references: Mapping[Kind, Story]
    deeds: Deeds
    watch: Watch

    def violations(self) -> list[str]:
        """Sentences. Waits for processes that are about to end."""
        return [
            *sorted(self.watch.booked_twice),
            *sorted(self.complaints),
            *self._lost_or_doubled(),
            *self._still_held(),
            *self._orphans(),
            *self._of_each_job(),
        ]

    def _of_each_job(self) -> list[str]:
        found: list[str] = []
        stories: dict[str, Story] = {}
        for errand in self.errands:
            if not errand.over:
                found.append(f"{errand.job_id}: is {errand.state} long after all has healed")
                continue
            story = stories[errand.job_id] = history.read(self.client, errand.job_id)
            reference = self.references[errand.kind]
            found += history.violations(story, ends=errand.ends, reference=reference, damaged=self.deeds.damaged)
        for job_id, earlier, later in sorted(self.watch.side_by_side):
            if job_id in stories:
                found += history.side_by_side(stories[job_id], earlier, later)
        return found

    def _lost_or_doubled(self) -> list[str]:
        undisturbed = [story.job.id for story in self.references.values()]
        accepted = Counter([*(errand.job_id for errand in self.errands), *undisturbed])
        listed = Counter(job.id for job in self.client.list())
        lost = [f"{job_id}: was accepted and is not listed" for job_id in accepted - listed]
        return lost + [f"{job_id}: was not accepted, or not so often, and is listed" for job_id in listed - accepted]

    def _still_held(self) -> list[str]:
        """Devices that no job needs any more."""
        return [
            f"{device.uuid} of {worker.id} is held by {device.job_id}, which has ended"
            for worker in self.client.workers()
            for device in worker.devices
            if device.job_id is not None and self.client.get(device.job_id).state.terminal
        ]

    def _orphans(self) -> list[str]:
        ended = [errand.job_id for errand in self.errands if errand.over]
        self.yard.tend_until(lambda: not crew.muster(ended), within=_ORPHANS_S)
        return [
            f"{member.job_id}: {member.role} of attempt {member.attempt} (pid {member.pid}) still runs"
            for member in crew.muster(ended)
        ]
