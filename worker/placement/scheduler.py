"""One pass over the queue: which waiting jobs this worker takes, for which it makes room, and why the others wait."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
import logging
from typing import Literal

from pydantic import ValidationError

from store.commands import placement
from store.db import stored_spec
from store.db.tables import Worker
from store.queries import preemption
from store.queries.preemption import PreemptedJob
from store.rows import intents, jobs, reasons, waiting, workers
from store.rows.attempts import Claim
from store.rows.intents import Holder
from store.rows.jobs import Reason
from store.rows.waiting import PREEMPTING, Waiting
from store.store import Store
from torchyard.contract.spec import Resources
from torchyard.contract.views import DeviceView, HeldDevice
from worker.placement import schedule
from worker.placement.floor import Floor
from worker.placement.line import Line

logger = logging.getLogger(__name__)

_Fate = Claim | Literal["waits", "apart"]
"""What becomes of a job: it is taken, it waits and its group with it, or it stands apart from the others of its group:
room is made for it, or it waits no more."""


@dataclass
class _Pass:
    """What one pass knows, and what it has found out."""

    may_claim: Callable[[], bool]
    takes: bool
    """False where this worker drains: it only says why the jobs wait."""
    floor: Floor
    holders: list[Holder]
    """The jobs on this worker."""
    stops: dict[str, list[PreemptedJob]]
    """The jobs that make room, on any worker, by the job that needs it."""
    said: Mapping[str, Reason]
    """What is said of each shape."""
    favoured: Mapping[str, str]
    """What is said of each job for which room is made, or was."""
    waiting: dict[Resources, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The shapes of jobs that do not fit, by what they need."""
    news: dict[Reason, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What jobs are to be told of which it alone is true."""
    ends: bool = False
    """Whether the worker may claim nothing more."""

    def tell(self, job_id: str, reason: Reason) -> None:
        if self.favoured.get(job_id) != reason.message:
            self.news[reason].append(job_id)


class Scheduler:
    """One worker's hands on the queue."""

    def __init__(
        self,
        *,
        worker_id: str,
        name: str,
        store: Store,
    ) -> None:
        self._id = worker_id
        self._name = name
        self._store = store

    def waiting(self) -> list[Waiting]:
        """The first job of each group that waits, by the rows. Raises Unavailable."""
        with self._store.read() as session:
            if not waiting.any_ungrouped(session):
                return waiting.group_heads(session)
        placement.group_waiting_jobs(self._store)
        with self._store.read() as session:
            return waiting.group_heads(session)

    def claims(
        self, heads: Sequence[Waiting], devices: Sequence[DeviceView], *, may_claim: Callable[[], bool]
    ) -> Generator[Claim]:
        """One pass: the attempts that this worker takes, each as soon as it is claimed.

        `heads`: what `waiting` answered. `devices`: the worker's own as they are now. `may_claim` is asked before
        each claim, and before others are asked to make room. Raises Unavailable.
        """
        if not heads:
            return
        with self._store.read() as session:
            known = workers.list_all(session)
            held = jobs.device_holders(session)
            holders = intents.holders(session, self._id)
            stops = _by_favoured(preemption.preempted_jobs(session))
            said, favoured = reasons.by_shape(session), reasons.of_preemptors(session, stops)
            alone = waiting.waiting_among(session, stops)
        hosts = {worker.id: _host(worker) for worker, alive in known if alive or worker.id == self._id}
        draining = self._id in hosts and hosts[self._id].draining
        hosts[self._id] = schedule.Host(self._name, devices, draining=draining)
        turn = _Pass(may_claim, not draining, Floor(hosts, held), holders, stops, said, favoured)
        line = Line(heads, alone, self._following)
        while (job := line.take()) is not None:
            resources = _understood(job)
            if resources is None:
                continue
            fate = self._consider(turn, job, resources)
            if isinstance(fate, Claim):
                yield fate
            if turn.ends:
                return
            if fate != "waits":
                line.move_up(job)
        self._say_why(turn)

    def _following(self, job: Waiting) -> Waiting | None:
        with self._store.read() as session:
            return waiting.next_of_group(session, job)

    def _consider(self, turn: _Pass, job: Waiting, resources: Resources) -> _Fate:
        """Takes the job, makes room for it, or notes that it waits."""
        # What did not fit before does not fit now, and nobody makes room: in one pass, the free devices only become
        # fewer, and the priorities lower.
        hopeless = resources in turn.waiting or not turn.takes
        chosen = None if hopeless else schedule.pick(resources, turn.floor.offered(self._id))
        if chosen is not None:
            return self._take(turn, job, resources, chosen)
        stops = turn.stops.get(job.id)
        if stops is not None:
            turn.tell(job.id, _preempting(stops))
        elif not hopeless:
            stops = self._make_room(turn, job, resources)
        if not stops:
            turn.waiting[resources].add(job.shape)
            return "waits"
        for stop in stops:
            if not stop.overdue:  # nobody behind the job may take the devices
                turn.floor.keep(stop.worker_id, resources, job_id=job.id)
        return "apart"

    def _take(self, turn: _Pass, job: Waiting, resources: Resources, chosen: Sequence[DeviceView]) -> _Fate:
        turn.ends = not turn.may_claim()
        if turn.ends:
            return "waits"
        devices = [
            HeldDevice(worker=self._id, index=view.index, uuid=view.uuid, name=view.name).model_dump()
            for view in chosen
        ]
        claim = placement.claim(self._store, job.id, worker_id=self._id, devices=devices)
        if claim is not None:
            turn.floor.take(self._id, chosen, job_id=job.id)
            logger.info("%s: attempt %d takes %s", job.id, claim.number, ", ".join(view.uuid for view in chosen))
            return claim
        with self._store.read() as session:
            turn.takes = not workers.is_draining(session, self._id)
            if not waiting.waiting_among(session, [job.id]):
                return "apart"
        # The worker drains, or somebody was faster to take the devices: so it is for the others of the group.
        turn.waiting[resources].add(job.shape)
        return "waits"

    def _make_room(self, turn: _Pass, job: Waiting, resources: Resources) -> list[PreemptedJob]:
        """Asks jobs of this worker to stop for this one, if that helps; those that it asked."""
        lower = [holder for holder in turn.holders if _may_stop(holder, job)]
        if not lower or turn.floor.fits_elsewhere(self._id, resources):
            return []
        victims = schedule.make_room(resources, turn.floor.offered(self._id), lower)
        if not victims or not turn.may_claim():
            return []
        stops = [PreemptedJob(victim.job_id, job.id, self._id, self._name) for victim in victims]
        asked = [stop.job_id for stop in stops]
        if not placement.preempt(self._store, asked, preemptor=job.id, reason=_preempting(stops)):
            return []
        turn.holders = [holder for holder in turn.holders if holder not in victims]
        turn.stops[job.id] = stops
        logger.info("%s: %s make room for it", job.id, ", ".join(asked))
        return stops

    def _say_why(self, turn: _Pass) -> None:
        """Each worker finds the same words in the same rows: where two look, neither corrects the other."""
        for_whom = {stop.job_id: stop.preemptor for stops in turn.stops.values() for stop in stops}
        common: dict[str, Reason] = {}
        for resources, reason in turn.floor.explain(turn.waiting, for_whom):
            common |= {shape: reason for shape in turn.waiting[resources] if turn.said.get(shape) != reason}
        for job_id in turn.favoured.keys() - turn.stops.keys():
            turn.tell(job_id, jobs.WAITING)  # for what its group waits
        if common or turn.news:
            placement.set_waiting_reasons(self._store, common, turn.news)
        elif turn.said.keys() - {shape for shapes in turn.waiting.values() for shape in shapes}:
            placement.delete_unused_reasons(self._store)


def _host(worker: Worker) -> schedule.Host:
    devices = [DeviceView.model_validate(device) for device in worker.devices]
    return schedule.Host(worker.name, devices, draining=worker.drain_requested_at is not None)


def _by_favoured(stops: Iterable[PreemptedJob]) -> dict[str, list[PreemptedJob]]:
    found: dict[str, list[PreemptedJob]] = defaultdict(list)
    for stop in stops:
        found[stop.preemptor].append(stop)
    return found


def _may_stop(holder: Holder, job: Waiting) -> bool:
    return holder.preemptible and not holder.stopping and holder.priority < job.priority


def _preempting(stops: Sequence[PreemptedJob]) -> Reason:
    names = " and ".join(sorted({stop.worker for stop in stops}))
    victims = ", ".join(sorted(stop.job_id for stop in stops))
    return Reason(PREEMPTING, f"room is made on {names}: {victims} of lower priority stops first")


def _understood(job: Waiting) -> Resources | None:
    """What the job asks for; None where only a newer worker knows."""
    try:
        return stored_spec.parse_resources(job.resources)
    except ValidationError:
        logger.warning("%s: this worker does not know what it asks for: %s", job.id, job.resources)
        return None
