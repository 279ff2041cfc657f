"""One pass over the queue: which waiting jobs this worker takes, for which it makes room, and why the others wait."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
import logging

from pydantic import ValidationError

from store import attempts, intents, jobs, workers
from store.attempts import Claim
from store.database import Database
from store.intents import Holder
from store.jobs import Reason, Startable
from store.queue import Queue
from store.tables import Worker
from torchyard.errors import Unavailable
from torchyard.spec import Resources
from torchyard.views import DeviceView, HeldDevice
from worker import schedule

_LOOKED_AT = 10_000

logger = logging.getLogger(__name__)


@dataclass
class _Pass:
    """What one pass knows, and what it has found out."""

    devices: Sequence[DeviceView]
    """This worker's, with who holds each."""
    held: dict[tuple[str, str], str]
    holders: list[Holder]
    waiting: dict[Resources, list[Startable]] = field(default_factory=lambda: defaultdict(list))
    """The jobs that do not fit, by what they need."""
    behind: tuple[str, list[Startable]] | None = None
    """The job for which room is being made here, and who must not take it."""


class Scheduler:
    """One worker's hands on the queue. `observe` tells its devices as they are; `may_claim` is asked before each claim;
    `start` gets what was claimed."""

    def __init__(
        self,
        *,
        worker_id: str,
        name: str,
        database: Database,
        queue: Queue,
        observe: Callable[[], list[DeviceView]],
        may_claim: Callable[[], bool],
        start: Callable[[Claim], None],
    ) -> None:
        self._id = worker_id
        self._name = name
        self._database = database
        self._queue = queue
        self._observe = observe
        self._may_claim = may_claim
        self._start = start

    def claim(self) -> None:
        """Raises Unavailable."""
        waiting = self._waiting()
        if not waiting:
            return
        with self._database.read() as session:
            candidates = jobs.startable(session, waiting[:_LOOKED_AT])
            if not candidates:
                return
            alive = [worker for worker, seen in workers.every(session) if seen]
            held = jobs.holders(session)
            holders = intents.holders(session, self._id)
        if any(worker.id == self._id and worker.drain_requested_at is not None for worker in alive):
            return
        turn = _Pass(devices=_held(self._id, self._observe(), held), held=held, holders=holders)
        for job, resources in _understood(candidates):
            if not self._consider(turn, job, resources):
                return
        self._say_why(turn, self._hosts(alive, turn))

    def _waiting(self) -> list[str]:
        try:
            return self._queue.waiting()
        except Unavailable as error:
            logger.warning("%s; reading the rows instead", error.message)
        with self._database.read() as session:
            return [job_id for job_id, _ in jobs.queued(session)]

    def _consider(self, turn: _Pass, job: Startable, resources: Resources) -> bool:
        """Takes the job, makes room for it, or notes that it waits. False where the pass is to end."""
        if turn.behind is not None:
            turn.behind[1].append(job)
            return True
        # What did not fit before does not fit now: in one pass, the free devices only become fewer.
        chosen = None if resources in turn.waiting else schedule.pick(resources, turn.devices)
        if chosen is not None:
            if not self._may_claim():
                return False
            if self._take(job.id, chosen):
                turn.held |= {(self._id, device.uuid): job.id for device in chosen}
                turn.devices = _held(self._id, turn.devices, turn.held)
        elif self._makes_room(turn, job, resources):
            turn.behind = (job.id, [])
        else:
            turn.waiting[resources].append(job)
        return True

    def _take(self, job_id: str, chosen: Sequence[DeviceView]) -> bool:
        devices = [
            HeldDevice(worker=self._id, index=view.index, uuid=view.uuid, name=view.name).model_dump()
            for view in chosen
        ]
        with self._database.write("claim") as session:
            claim = attempts.claim(session, job_id, worker_id=self._id, devices=devices)
        try:
            self._queue.remove(job_id)
        except Unavailable as error:
            logger.warning("%s; the queue is corrected later", error.message)
        if claim is None:
            return False
        self._queue.announce(job_id)
        logger.info("%s: attempt %d takes %s", job_id, claim.number, ", ".join(view.uuid for view in chosen))
        self._start(claim)
        return True

    def _makes_room(self, turn: _Pass, job: Startable, resources: Resources) -> bool:
        """Whether jobs of this worker stop for this one: nobody behind it may take their devices then."""
        if any(holder.favoured == job.id for holder in turn.holders):
            return True
        lower = [holder for holder in turn.holders if holder.preemptible and holder.priority < job.priority]
        victims = schedule.make_room(resources, turn.devices, [holder for holder in lower if not holder.stopping])
        if not victims:
            return False
        ids = [victim.job_id for victim in victims]
        with self._database.write("preempt") as session:
            asked = intents.request_preempt(session, ids, in_favour_of=job.id)
            if asked:
                text = f"room is made on {self._name}: {', '.join(ids)} of lower priority stops first"
                jobs.set_waiting_reason(session, [job.id], Reason("preempting", text))
        for job_id in (*ids, job.id) if asked else ():
            logger.info("%s: makes room for %s", job_id, job.id)
            self._queue.announce(job_id)
        return asked

    def _hosts(self, alive: Iterable[Worker], turn: _Pass) -> list[schedule.Host]:
        """Every worker, in the order that all of them use."""
        hosts = {
            worker.id: schedule.Host(
                worker.name,
                _held(worker.id, [DeviceView.model_validate(device) for device in worker.devices], turn.held),
                draining=worker.drain_requested_at is not None,
            )
            for worker in alive
        }
        hosts[self._id] = schedule.Host(self._name, turn.devices)
        return [hosts[worker_id] for worker_id in sorted(hosts)]

    def _say_why(self, turn: _Pass, hosts: Sequence[schedule.Host]) -> None:
        news: dict[Reason, list[str]] = defaultdict(list)
        for resources, held_up in turn.waiting.items():
            reason = schedule.explain(resources, hosts)
            news[reason] += [job.id for job in held_up if job.reason != reason.message]
        if turn.behind is not None:
            favoured, others = turn.behind
            reason = Reason(
                "devices_busy", f"room is being made on {self._name} for {favoured}, which starts before it"
            )
            news[reason] += [job.id for job in others if job.reason != reason.message]
        if not any(news.values()):
            return
        with self._database.write("reason") as session:
            for reason, told in news.items():
                jobs.set_waiting_reason(session, told, reason)


def _held(worker_id: str, devices: Sequence[DeviceView], held: dict[tuple[str, str], str]) -> list[DeviceView]:
    """`devices` with who holds them. In a container the driver may tell pids that are not ours for our own job's."""
    holders = [held.get((worker_id, view.uuid)) for view in devices]
    return [
        view.model_copy(update={"job_id": holder, "blocked": None if holder is not None else view.blocked})
        for view, holder in zip(devices, holders, strict=True)
    ]


def _understood(candidates: Iterable[Startable]) -> Generator[tuple[Startable, Resources]]:
    """Leaves out the jobs that ask for what only a newer worker knows."""
    for job in candidates:
        try:
            resources = Resources.model_validate(job.resources)
        except ValidationError:
            logger.warning("%s: this worker does not know what it asks for: %s", job.id, job.resources)
            continue
        yield job, resources
