"""One walk along the line: what starts, then what passes, and then what is stopped for others."""

from collections.abc import Callable, Generator
import heapq

from scheduling import displacing, pools, reasons, reservation
from scheduling.belief import believed_length, most_left
from scheduling.cluster import Cluster, Keep, spare_sorts
from scheduling.displacing import Victims
from scheduling.line import Line
from scheduling.placing import open_room, passage
from scheduling.requests import Request
from scheduling.room import Room
from scheduling.shapes import looked
from scheduling.snapshot import (
    Displacement,
    Kind,
    Reservation,
    Snapshot,
    Waiting,
)
from scheduling.steps import Plan, Start, Stop, Why
from scheduling.taking import Given, Taken, names_pool, refusal, start_of
from torchyard.contract.states import Reason

_MOST_ROUNDS = 8
"""A place that is given up may serve a job that was considered before."""


class Walk:
    """The free devices only become fewer on the way, but for places that are given up: then it begins again."""

    def __init__(self, snapshot: Snapshot, cluster: Cluster, line: Line) -> None:
        self._snapshot = snapshot
        self._cluster = cluster
        self._line = line
        self._allowances = dict(snapshot.allowances)
        self._pools = pools.by_name(snapshot.pools)
        self._displacements: dict[str, list[Displacement]] = {}
        for one in sorted(snapshot.displacements, key=lambda one: one.victim):
            self._displacements.setdefault(one.job_id, []).append(one)
        self._steps: list[Taken | Given | Stop] = []
        self._held_back: dict[str, Reason] = {}
        """Why the jobs of a shape wait that a quota or their pool holds back."""
        self._hopeless: set[object] = set()
        """What fits nowhere on this round, so that equal requests need not be tried."""
        self._blocked: dict[Kind, int] = {}
        """The highest priority of each kind of which a job fits nowhere: those behind it pass it."""
        self._deferred: list[Waiting] = []
        """Jobs that fit, but behind one that does not: the shortest of them starts first."""
        self._gave_up = False

    def walking(self) -> Generator[None]:
        """Considers the jobs in their order. Those that may pass follow, the shortest first; then who may displace.

        It yields after each job.
        """
        for _ in range(_MOST_ROUNDS):
            self._gave_up = False
            self._hopeless.clear()
            self._blocked.clear()
            self._deferred.clear()
            yield from self._in_order()
            yield from self._each_first(believed_length, self._pass, self._may_pass)
            for job in [job for job in self._deferred if self._line.is_first(job) and self._may_act(job)]:
                self._consider(job)
                yield
            yield from self._each_first(lambda _: 0, self._displace, self._may_displace)
            if not self._gave_up:
                return

    def plan(self) -> Plan:
        steps, kept = self.decided()
        crowded = self._snapshot.crowded
        explained = reasons.explain(self._cluster, self._line, self._displacements, self._held_back, crowded)
        used_up = frozenset({job.group for job in self._snapshot.line} - self._line.waiting_groups())
        return Plan(steps, kept, explained, used_up, self.again_at())

    def decided(self) -> tuple[tuple[Start | Stop, ...], tuple[Reservation, ...]]:
        """Returns the steps and the places of the plan, without any reasons."""
        started = {step.job.id for step in self._steps if not isinstance(step, Stop)}
        kept = reservation.wanted(self._cluster, self._snapshot.reservations, started)
        at = {one.place: one for one in kept}
        return tuple(step if isinstance(step, Stop) else start_of(step, at) for step in self._steps), kept

    def again_at(self) -> int | None:
        on_hosts = [job for job in self._line.firsts() if not names_pool(job)]
        return displacing.again_at(self._cluster, on_hosts)

    def _in_order(self) -> Generator[None]:
        aside = [job for job in self._line.considered if job.id in self._displacements]
        for job in self._line.considered:
            # Who has a higher priority may still take what is set aside.
            while aside and aside[0].priority >= job.priority:
                self._set_aside(aside.pop(0))
            if self._line.is_first(job) and self._may_act(job):
                self._consider(job)
                yield

    def _each_first(
        self, rank: Callable[[Waiting], int], act: Callable[[Waiting], bool], may: Callable[[Waiting], bool]
    ) -> Generator[None]:
        """Calls `act` for the first job of each group, the least `rank` first. After True, the next job follows.

        `may`: whether `act` could do anything for a job. A quota can hold one back, and give up what is kept for it.
        """
        firsts = [job for job in self._line.firsts() if self._allowances or may(job)]
        heap = [(-job.priority, rank(job), self._line.key(job), job) for job in firsts]
        heapq.heapify(heap)
        while heap:
            job = heapq.heappop(heap)[3]
            alone = job.id in self._line.alone
            yield
            if not (self._may_act(job) and act(job)) or alone:
                continue
            following = self._line.first_of(job.group)
            if following is not None:
                heapq.heappush(heap, (-following.priority, rank(following), self._line.key(following), following))

    def _may_act(self, job: Waiting) -> bool:
        if not self._allowances and not self._snapshot.refused:
            return True
        refusal = self._refusal(job)
        if refusal is None:
            return job.request not in self._snapshot.refused
        self._held_back[job.shape] = reasons.over_quota(refusal)
        self._give_up(job)
        return False

    def _consider(self, job: Waiting) -> None:
        """Starts the job, stops others of lower priority for it, or keeps a place for it."""
        if names_pool(job):
            self._give(job)
            return
        aside, keep = self._cluster.asides.get(job.id), self._cluster.kept_for(job.id)
        equal: tuple[Request, int] | None = None
        if aside is None and keep is None and job.id not in self._displacements:
            equal = job.request, job.priority
            if equal in self._hopeless:
                return
        if aside is not None and self._cluster.is_complete(aside):
            self._start_aside(job)
        elif (room := open_room(self._cluster, job)) is not None:
            if equal is not None and self._blocked.get(self._line.kind(job), job.priority - 1) >= job.priority:
                self._deferred.append(job)
            else:
                self._start(job, room)
        else:
            kind = self._line.kind(job)
            self._blocked[kind] = max(job.priority, self._blocked.get(kind, job.priority))
            self._make_way(job, keep)

    def _make_way(self, job: Waiting, keep: Keep | None) -> None:
        """Stops others for a job that fits nowhere, or keeps a place for it."""
        if job.id in self._displacements:
            return
        if victims := displacing.for_priority(self._cluster, job):
            self._stop(job, victims, "priority")
        elif keep is not None:
            self._follow(job, keep)
        elif reservation.reserve(self._cluster, job):
            self._line.set_alone(job)
        else:
            self._hopeless.add((job.request, job.priority))

    def _follow(self, job: Waiting, keep: Keep) -> None:
        """Stops the guests of a holder that can start, or keeps a better place for it."""
        if victims := displacing.guests_in_the_way(self._cluster, job):
            self._stop(job, victims, "due")
        elif reservation.move(self._cluster, keep):
            self._gave_up = True

    def _may_pass(self, job: Waiting) -> bool:
        return bool(self._cluster.fitting(job))

    def _pass(self, job: Waiting) -> bool:
        key = "pass", *self._pace(job)
        if job.id in self._displacements or key in self._hopeless or names_pool(job):
            return False
        if (room := open_room(self._cluster, job)) is not None:
            self._start(job, room)
        elif (chosen := passage(self._cluster, job)) is not None:
            self._start(job, chosen[0], guest=chosen[1] == "guest")
        else:
            self._hopeless.add(key)
            return False
        return True

    def _may_displace(self, job: Waiting) -> bool:
        return not looked(job.ran_us) or self._cluster.kept_for(job.id) is not None

    def _displace(self, job: Waiting) -> bool:
        if job.id in self._displacements or names_pool(job):
            return False
        key = "look", looked(job.ran_us), *self._pace(job)
        victims = None
        if key not in self._hopeless:
            victims = displacing.for_first_look(self._cluster, job)
        if victims is not None:
            self._stop(job, victims, "first_look")
            return True
        self._hopeless.add(key)
        if self._cluster.kept_for(job.id) is None:
            return False
        victims = displacing.for_long_wait(self._cluster, job)
        if victims is not None:
            self._stop(job, victims, "waited")
        return victims is not None

    def _pace(self, job: Waiting) -> tuple[object, ...]:
        """Returns what is equal for jobs of which either all may pass, or none."""
        holds = self._cluster.kept_for(job.id) is not None
        return job.request, job.priority, most_left(job), job.preemptible, believed_length(job), holds

    def _give(self, job: Waiting) -> None:
        """Gives the job to its pool, unless that takes none of its owner now."""
        pool = self._pools.get(str(job.resources.pool))
        refusal = pools.refusal(pool, job.owner, job.resources)
        if pool is None or refusal is not None:
            self._held_back[job.shape] = refusal or pools.next_for(job.resources)
            return
        self._pools[pool.name] = pool.with_job(job.owner)
        self._note_start(Given(job, pool))

    def _start(self, job: Waiting, room: Room, *, guest: bool = False) -> None:
        keeps = self._cluster.before(job, room)
        self._give_up(job)
        holder = self._cluster.holder_of(job, guest=guest)
        devices = self._cluster.take(room, holder, room.pick(room.want(job), last=spare_sorts(room, keeps)))
        self._note_start(Taken(job, room, devices, guest))

    def _start_aside(self, job: Waiting) -> None:
        """Starts the job on the devices that were set aside for it, and are free now."""
        aside = self._cluster.asides.pop(job.id)
        self._give_up(job)
        self._note_start(Taken(job, aside.room, aside.devices, guest=False))

    def _note_start(self, step: Taken | Given) -> None:
        self._line.serve(step.job)
        self._steps.append(step)
        if (allowance := self._allowances.get(step.job.owner)) is not None:
            self._allowances[step.job.owner] = allowance.with_job(step.job.resources.total_devices)

    def _stop(self, job: Waiting, victims: Victims, why: Why) -> None:
        host = victims.room.host
        made = [
            Displacement(
                job_id=job.id,
                owner=job.owner,
                victim=victim.job_id,
                victim_owner=self._cluster.running[victim.job_id].owner,
                worker_id=host.id,
                worker=host.name,
                until=self._snapshot.now,
            )
            for victim in sorted(victims.holders, key=lambda holder: holder.job_id)
        ]
        self._displacements[job.id] = made
        self._cluster.set_aside(job, victims.room, victims.holders)
        self._line.set_alone(job)
        self._steps.append(Stop(job, tuple(made), why, reasons.preempting(made)))

    def _set_aside(self, job: Waiting) -> None:
        """Sets devices aside for a job for which others stop already."""
        displacements = self._displacements[job.id]
        room = self._cluster.rooms.get(displacements[0].worker_id)
        late = max(one.until for one in displacements) < self._snapshot.now
        if job.id in self._cluster.asides or room is None or late or self._refusal(job) is not None:
            return
        victims = [room.holders[one.victim] for one in displacements if one.victim in room.holders]
        if room.want(job).possible:
            self._cluster.set_aside(job, room, victims)

    def _give_up(self, job: Waiting) -> None:
        """Gives up what is kept or set aside for the job."""
        aside = self._cluster.drop_aside(job.id)
        if self._cluster.release(job.id) or aside is not None:
            self._gave_up = True

    def _refusal(self, job: Waiting) -> str | None:
        return refusal(job, self._allowances)
