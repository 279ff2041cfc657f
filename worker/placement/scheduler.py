"""One pass over the queue: which waiting jobs this worker takes, for which it makes room, and why the others wait."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
import logging

from pydantic import ValidationError

from store.commands import placement
from store.db import terms
from store.db.tables import Worker
from store.queries import room
from store.queries.room import Stop
from store.queue import QueueUnavailable
from store.rows import intents, jobs, workers
from store.rows.attempts import Claim
from store.rows.intents import Holder
from store.rows.jobs import Reason, Startable
from store.store import Store
from torchyard.spec import Resources
from torchyard.views import DeviceView, HeldDevice
from worker.placement import schedule
from worker.placement.floor import Floor

_LOOKED_AT = 10_000

logger = logging.getLogger(__name__)


@dataclass
class _Pass:
    """What one pass knows, and what it has found out."""

    may_claim: Callable[[], bool]
    takes: bool
    """False where this worker drains: it only says why the jobs wait."""
    floor: Floor
    holders: list[Holder]
    """The jobs on this worker."""
    stops: dict[str, list[Stop]]
    """The jobs that make room, on any worker, by the job that needs it."""
    waiting: dict[Resources, list[Startable]] = field(default_factory=lambda: defaultdict(list))
    """The jobs that do not fit, by what they need."""
    news: dict[Reason, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What jobs are to be told."""
    ends: bool = False
    """Whether the worker may claim nothing more."""

    def tell(self, told: Iterable[Startable], reason: Reason) -> None:
        news = [job.id for job in told if job.reason != reason.message]
        if news:
            self.news[reason] += news


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

    def waiting(self) -> list[str]:
        """The ids of the queued jobs, in the order in which they are considered. Raises Unavailable."""
        try:
            return self._store.queue.waiting()
        except QueueUnavailable as error:
            logger.warning("%s; reading the rows instead", error.message)
        with self._store.read() as session:
            return [job_id for job_id, _ in jobs.queued(session)]

    def claims(
        self, waiting: Sequence[str], devices: Sequence[DeviceView], *, may_claim: Callable[[], bool]
    ) -> Generator[Claim]:
        """One pass: the attempts that this worker takes, each as soon as it is claimed.

        `waiting`: what `waiting` answered. `devices`: the worker's own as they are now. `may_claim` is asked before
        each claim, and before others are asked to make room. Raises Unavailable.
        """
        with self._store.read() as session:
            candidates = jobs.startable(session, waiting[:_LOOKED_AT])
            if not candidates:
                return
            known = workers.every(session)
            held = jobs.holders(session)
            holders = intents.holders(session, self._id)
            stops = room.stops(session)
        hosts = {worker.id: _host(worker) for worker, alive in known if alive or worker.id == self._id}
        draining = self._id in hosts and hosts[self._id].draining
        hosts[self._id] = schedule.Host(self._name, devices, draining=draining)
        turn = _Pass(
            may_claim, takes=not draining, floor=Floor(hosts, held), holders=holders, stops=_by_favoured(stops)
        )
        for job, resources in _understood(candidates):
            claim = self._consider(turn, job, resources)
            if claim is not None:
                yield claim
            if turn.ends:
                return
        self._say_why(turn)

    def _consider(self, turn: _Pass, job: Startable, resources: Resources) -> Claim | None:
        """Takes the job, makes room for it, or notes that it waits."""
        # What did not fit before does not fit now, and nobody makes room: in one pass, the free devices only become
        # fewer, and the priorities lower.
        hopeless = resources in turn.waiting or not turn.takes
        chosen = None if hopeless else schedule.pick(resources, turn.floor.offered(self._id))
        if chosen is not None:
            turn.ends = not turn.may_claim()
            return None if turn.ends else self._take(turn, job.id, chosen)
        stops = turn.stops.get(job.id)
        if stops is not None:
            turn.tell([job], _preempting(stops))
        elif not hopeless:
            stops = self._make_room(turn, job, resources)
        if not stops:
            turn.waiting[resources].append(job)
            return None
        for stop in stops:
            if not stop.overdue:  # nobody behind the job may take the devices
                turn.floor.keep(stop.worker_id, resources, job_id=job.id)
        return None

    def _take(self, turn: _Pass, job_id: str, chosen: Sequence[DeviceView]) -> Claim | None:
        devices = [
            HeldDevice(worker=self._id, index=view.index, uuid=view.uuid, name=view.name).model_dump()
            for view in chosen
        ]
        claim = placement.claim(self._store, job_id, worker_id=self._id, devices=devices)
        if claim is None:
            turn.takes = not self._drains()
            return None  # it waits for others, or for nobody any more
        turn.floor.take(self._id, chosen, job_id=job_id)
        logger.info("%s: attempt %d takes %s", job_id, claim.number, ", ".join(view.uuid for view in chosen))
        return claim

    def _drains(self) -> bool:
        with self._store.read() as session:
            return workers.drains(session, self._id)

    def _make_room(self, turn: _Pass, job: Startable, resources: Resources) -> list[Stop]:
        """Asks jobs of this worker to stop for this one, if that helps; those that it asked."""
        lower = [holder for holder in turn.holders if _may_stop(holder, job)]
        if not lower or turn.floor.fits_elsewhere(self._id, resources):
            return []
        victims = schedule.make_room(resources, turn.floor.offered(self._id), lower)
        if not victims or not turn.may_claim():
            return []
        stops = [Stop(victim.job_id, job.id, self._id, self._name) for victim in victims]
        asked = [stop.job_id for stop in stops]
        if not placement.preempt(self._store, asked, in_favour_of=job.id, reason=_preempting(stops)):
            return []
        turn.holders = [holder for holder in turn.holders if holder not in victims]
        turn.stops[job.id] = stops
        logger.info("%s: %s make room for it", job.id, ", ".join(asked))
        return stops

    def _say_why(self, turn: _Pass) -> None:
        """Each worker finds the same words in the same rows: where two look, neither corrects the other."""
        favoured = {stop.job_id: stop.favoured for stops in turn.stops.values() for stop in stops}
        for resources, reason in turn.floor.explain(turn.waiting, favoured):
            turn.tell(turn.waiting[resources], reason)
        if turn.news:
            placement.tell_why(self._store, turn.news)


def _host(worker: Worker) -> schedule.Host:
    devices = [DeviceView.model_validate(device) for device in worker.devices]
    return schedule.Host(worker.name, devices, draining=worker.drain_requested_at is not None)


def _by_favoured(stops: Iterable[Stop]) -> dict[str, list[Stop]]:
    found: dict[str, list[Stop]] = defaultdict(list)
    for stop in stops:
        found[stop.favoured].append(stop)
    return found


def _may_stop(holder: Holder, job: Startable) -> bool:
    return holder.preemptible and not holder.stopping and holder.priority < job.priority


def _preempting(stops: Sequence[Stop]) -> Reason:
    names = " and ".join(sorted({stop.worker for stop in stops}))
    victims = ", ".join(sorted(stop.job_id for stop in stops))
    return Reason("preempting", f"room is made on {names}: {victims} of lower priority stops first")


def _understood(candidates: Iterable[Startable]) -> Generator[tuple[Startable, Resources]]:
    """Leaves out the jobs that ask for what only a newer worker knows."""
    for job in candidates:
        try:
            resources = terms.resources(job.resources)
        except ValidationError:
            logger.warning("%s: this worker does not know what it asks for: %s", job.id, job.resources)
            continue
        yield job, resources
