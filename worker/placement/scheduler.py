"""One pass over the queue: takes jobs for this worker, preempts others for them, and records why the rest waits."""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
import logging
from typing import Literal

from pydantic import ValidationError

from store.commands import placement
from store.db import stored_spec
from store.db.tables import Worker
from store.queries import preemption
from store.queries.preemption import PreemptedJob
from store.rows import intents, jobs, quotas, reasons, waiting, workers
from store.rows.attempts import Claim
from store.rows.intents import Holder
from store.rows.jobs import Reason
from store.rows.quotas import Allowance
from store.rows.waiting import PREEMPTING, Waiting
from store.store import Store
from torchyard.contract.devices import DeviceReport
from torchyard.contract.durations import LONGEST_STOP_GRACE
from torchyard.contract.spec import Resources
from torchyard.contract.views.jobs import HeldDevice
from worker.placement import schedule
from worker.placement.candidates import Candidates
from worker.placement.capacity import Capacity

logger = logging.getLogger(__name__)

_Outcome = Claim | Literal["group waits", "next in group"]
"""What a pass does with a job.

A claim: the worker takes it. "group waits": it waits, and so do the others of its group. "next in group": it waits for
preempted jobs or left the queue meanwhile, and the next job of its group is considered as well.
"""


@dataclass
class _Pass:
    """What one pass has read, and what it has found out."""

    may_claim: Callable[[], bool]
    may_take: bool
    """False if this worker drains: then it only records why the jobs wait."""
    capacity: Capacity
    holders: list[Holder]
    """The jobs on this worker."""
    allowances: Mapping[str, Allowance]
    """What the quotas of the jobs' owners allow; owners without a limit are left out."""
    stops: dict[str, list[PreemptedJob]]
    """The preempted jobs of all workers, by the job that needs their devices."""
    recorded: Mapping[str, Reason]
    """The recorded reason of each shape."""
    messages: Mapping[str, str]
    """The recorded message of each job for which others are or were preempted."""
    waiting: dict[Resources, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The shapes of the jobs that do not fit, by what they request."""
    over_quota: dict[str, Reason] = field(default_factory=dict[str, Reason])
    """Why the jobs of a shape may not start now, although devices may be free."""
    own_reasons: dict[Reason, list[str]] = field(default_factory=lambda: defaultdict(list))
    """New reasons of single jobs, which differ from their groups' reasons."""
    stopped: bool = False
    """Whether the worker may claim nothing more."""

    def set_reason(self, job_id: str, reason: Reason) -> None:
        if self.messages.get(job_id) != reason.message:
            self.own_reasons[reason].append(job_id)


class Scheduler:
    """Places waiting jobs on one worker."""

    def __init__(
        self, *, worker_id: str, name: str, store: Store, max_stop_grace: timedelta = LONGEST_STOP_GRACE
    ) -> None:
        self.name = name
        self._max_stop_grace = max_stop_grace
        self._id = worker_id
        self._store = store

    def waiting(self) -> list[Waiting]:
        """Returns the first waiting job of each group. Raises Unavailable."""
        with self._store.read() as session:
            if not waiting.any_ungrouped(session):
                return waiting.group_heads(session)
        placement.group_waiting_jobs(self._store)
        with self._store.read() as session:
            return waiting.group_heads(session)

    def claims(
        self, heads: Sequence[Waiting], devices: Sequence[DeviceReport], *, may_claim: Callable[[], bool]
    ) -> Generator[Claim]:
        """Makes one pass. Yields each attempt that this worker takes, as soon as it is claimed.

        `heads`: what `waiting` returned. `devices`: the worker's devices as they are now. `may_claim` is called before
        each claim and before other jobs are preempted. Raises Unavailable.
        """
        if not heads:
            return
        with self._store.read() as session:
            known = workers.list_all(session)
            held = jobs.device_holders(session)
            holders = intents.holders(session, self._id)
            stops = _by_preemptor(preemption.preempted_jobs(session, max_stop_grace=self._max_stop_grace))
            recorded, messages = reasons.by_shape(session), reasons.of_preemptors(session, stops)
            preemptors = waiting.waiting_among(session, stops)
            allowances = quotas.allowances(session, {job.owner for job in (*heads, *preemptors)})
        hosts = {worker.id: _host(worker) for worker, alive in known if alive or worker.id == self._id}
        draining = self._id in hosts and hosts[self._id].draining
        hosts[self._id] = schedule.Host(self.name, devices, draining=draining)
        state = _Pass(may_claim, not draining, Capacity(hosts, held), holders, allowances, stops, recorded, messages)
        candidates = Candidates(heads, preemptors, self._next_in_group)
        while (job := candidates.pop()) is not None:
            resources = _parse_resources(job)
            if resources is None:
                continue
            outcome = self._consider(state, job, resources)
            if isinstance(outcome, Claim):
                yield outcome
            if state.stopped:
                return
            if outcome != "group waits":
                candidates.push_successor(job)
        self._record_reasons(state)

    def _next_in_group(self, job: Waiting) -> Waiting | None:
        with self._store.read() as session:
            return waiting.next_of_group(session, job)

    def _consider(self, state: _Pass, job: Waiting, resources: Resources) -> _Outcome:
        """Takes the job, preempts others for it, or notes that it waits."""
        allowance = state.allowances.get(job.owner)
        refused = None if allowance is None else allowance.refusal(resources.devices_per_node)
        if refused is not None:
            state.over_quota[job.shape] = Reason("quota", refused)
            return "group waits"
        # In one pass, the free devices only become fewer and the priorities lower. So a request that did not fit
        # before does not fit now, and preempts nothing.
        hopeless = resources in state.waiting or not state.may_take
        chosen = None if hopeless else schedule.pick_devices(resources, state.capacity.offered(self._id))
        if chosen is not None:
            return self._take(state, job, resources, chosen)
        stops = state.stops.get(job.id)
        if stops is not None:
            state.set_reason(job.id, _preempting(stops))
        elif not hopeless:
            stops = self._preempt_for(state, job, resources)
        if not stops:
            state.waiting[resources].add(job.shape)
            return "group waits"
        for stop in stops:
            if not stop.overdue:  # no job behind this one may take the devices
                state.capacity.reserve(stop.worker_id, resources, job_id=job.id)
        return "next in group"

    def _take(self, state: _Pass, job: Waiting, resources: Resources, chosen: Sequence[DeviceReport]) -> _Outcome:
        state.stopped = not state.may_claim()
        if state.stopped:
            return "group waits"
        devices = [
            HeldDevice(worker=self._id, index=view.index, uuid=view.uuid, name=view.name).model_dump()
            for view in chosen
        ]
        claim = placement.claim(self._store, job.id, worker_id=self._id, devices=devices)
        if claim is not None:
            state.capacity.take(self._id, chosen, job_id=job.id)
            if (allowance := state.allowances.get(job.owner)) is not None:
                allowance.take(len(chosen))
            logger.info("%s: attempt %d takes %s", job.id, claim.number, ", ".join(view.uuid for view in chosen))
            return claim
        with self._store.read() as session:
            state.may_take = not workers.is_draining(session, self._id)
            if not waiting.waiting_among(session, [job.id]):
                return "next in group"
        # The worker drains, or another worker took the devices first: both concern the whole group.
        state.waiting[resources].add(job.shape)
        return "group waits"

    def _preempt_for(self, state: _Pass, job: Waiting, resources: Resources) -> list[PreemptedJob]:
        """Asks jobs of this worker to stop for this one, if that helps. Returns the stops that it asked for."""
        lower = [holder for holder in state.holders if _is_preemptible(holder, job)]
        if not lower or state.capacity.fits_elsewhere(self._id, resources):
            return []
        victims = schedule.choose_victims(resources, state.capacity.offered(self._id), lower)
        if not victims or not state.may_claim():
            return []
        stops = [
            PreemptedJob(victim.job_id, job.id, self._id, self.name, victim.owner, job.owner) for victim in victims
        ]
        job_ids = [stop.job_id for stop in stops]
        if not placement.preempt(self._store, job_ids, preemptor=job.id, reason=_preempting(stops)):
            return []
        state.holders = [holder for holder in state.holders if holder not in victims]
        state.stops[job.id] = stops
        logger.info("%s: preempts %s", job.id, ", ".join(job_ids))
        return stops

    def _record_reasons(self, state: _Pass) -> None:
        """Records the new reasons. All workers build equal sentences from equal rows, so they change nothing twice."""
        preemptors = {stop.job_id: stop.preemptor_owner for stops in state.stops.values() for stop in stops}
        by_shape = dict(state.over_quota)
        for resources, reason in state.capacity.explain(state.waiting, preemptors):
            by_shape |= dict.fromkeys(state.waiting[resources], reason)
        unused = state.recorded.keys() - by_shape.keys()
        by_shape = {shape: reason for shape, reason in by_shape.items() if state.recorded.get(shape) != reason}
        for job_id in state.messages.keys() - state.stops.keys():
            state.set_reason(job_id, jobs.WAITING)  # it shows its group's reason again
        if by_shape or state.own_reasons:
            placement.set_waiting_reasons(self._store, by_shape, state.own_reasons)
        elif unused:
            placement.delete_unused_reasons(self._store)


def _host(worker: Worker) -> schedule.Host:
    devices = [DeviceReport.from_dict(device) for device in worker.devices]
    return schedule.Host(worker.name, devices, draining=worker.drain_requested_at is not None)


def _by_preemptor(stops: Iterable[PreemptedJob]) -> dict[str, list[PreemptedJob]]:
    found: dict[str, list[PreemptedJob]] = defaultdict(list)
    for stop in stops:
        found[stop.preemptor].append(stop)
    return found


def _is_preemptible(holder: Holder, job: Waiting) -> bool:
    return holder.preemptible and not holder.stopping and holder.priority < job.priority


def _preempting(stops: Sequence[PreemptedJob]) -> Reason:
    names = " and ".join(sorted({stop.worker for stop in stops}))
    # Other users' private jobs are not named.
    victims = Counter(stop.owner for stop in stops)
    jobs_of = " and ".join(
        f"{count} job{'s' if count > 1 else ''} of {owner}" for owner, count in sorted(victims.items())
    )
    return Reason(PREEMPTING, f"preempts {jobs_of} with lower priority on {names}")


def _parse_resources(job: Waiting) -> Resources | None:
    """Returns what the job requests, or None if only a newer worker understands it."""
    try:
        return stored_spec.parse_resources(job.resources)
    except ValidationError:
        logger.warning("%s: this worker does not understand its request: %s", job.id, job.resources)
        return None
