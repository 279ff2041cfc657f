"""Why a job waits. All workers build equal sentences from equal snapshots.

They hold no times, so they change rarely.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from scheduling import pools
from scheduling.cluster import Cluster, Keep
from scheduling.line import Line
from scheduling.needs import NOTHING, Offer
from scheduling.requests import Request
from scheduling.room import Room, Sort, Want, sort_of
from scheduling.snapshot import Displacement, Kind, Place, Waiting
from scheduling.steps import Reasons
from torchyard.contract.states import DEVICES_BUSY, RESERVED, Reason

PREEMPTING = "preempting"
"""Reason code of a queued job for which others are being stopped."""
NO_SUCH_WORKER = "no_such_worker"
"""Reason code of a queued job that may start on no worker that answers."""
_MOST_NAMED = 3
"""So many hosts without a free device are named in a reason."""


def explain(
    cluster: Cluster,
    line: Line,
    displacements: Mapping[str, Sequence[Displacement]],
    held_back: Mapping[str, Reason],
    crowded: Set[str] = frozenset(),
) -> Reasons:
    """Returns why the jobs of the line wait, when all steps of a plan are carried out.

    `held_back`: why those of a shape wait that a quota or their pool holds back. `crowded`: the owners of whose
    requests not all were looked at.
    """
    explainer = Explainer(cluster)
    firsts = [job for job in line.firsts() if job.shape not in held_back]
    ahead: dict[str, Waiting] = {}
    by_shape, by_job = dict(held_back), dict[str, Reason]()
    for job in firsts:
        if job.resources.pool is not None:
            by_shape[job.shape] = pools.next_for(job.resources)
            continue
        first = ahead.setdefault(line.kind(job), job)
        keep = cluster.kept_for(job.id)
        if job.id in displacements:
            by_job[job.id] = preempting(displacements[job.id])
        elif keep is not None:
            by_job[job.id] = explainer.of_holder(job, keep)
        elif job.shape not in by_shape:
            reason = explainer.explain(job, _ahead(first, job))
            by_shape[job.shape] = _in_turn(reason) if job.owner in crowded else reason
    return Reasons(by_shape, by_job)


def _in_turn(reason: Reason) -> Reason:
    return Reason(reason.code, f"{reason.message}; the many different requests of its owner take turns")


def over_quota(refusal: str) -> Reason:
    """Returns the reason of a job that `Allowance.refusal` holds back."""
    return Reason("quota", refusal)


def preempting(displacements: Sequence[Displacement]) -> Reason:
    """Returns the reason of a job for which others were asked to stop."""
    names = " and ".join(sorted({displacement.worker for displacement in displacements}))
    # Other users' private jobs are not named.
    victims = Counter(displacement.victim_owner for displacement in displacements)
    jobs_of = " and ".join(
        f"{count} job{'s' if count > 1 else ''} of {owner}" for owner, count in sorted(victims.items())
    )
    return Reason(PREEMPTING, f"preempts {jobs_of} on {names}")


class Explainer:
    """Explains requests on hosts on which nothing changes any more."""

    def __init__(self, cluster: Cluster) -> None:
        self._rooms = [*cluster.rooms.values()]
        self._known = next((room.host.known for room in self._rooms), NOTHING)
        self._keeps: dict[str, list[Keep]] = {}
        for _, keep in sorted(cluster.keeps.items()):
            self._keeps.setdefault(keep.room.host.id, []).append(keep)
        self._preemptors: dict[Place, set[str]] = {}
        """The owners of the jobs for which devices are set aside."""
        for owner, place in cluster.aside_places():
            self._preemptors.setdefault(place, set()).add(owner)
        self._reasons: dict[Request, Reason] = {}
        self._devices: dict[tuple[str, tuple[Sort, ...], bool], tuple[str, list[str]]] = {}

    def explain(self, job: Waiting, ahead: str | None) -> Reason:
        """Returns why a job with this request does not start. `ahead`: who is first in the line, and why."""
        if job.request not in self._reasons:
            self._reasons[job.request] = self._explain(job)
        reason = self._reasons[job.request]
        return Reason(reason.code, f"{reason.message}; {ahead}") if ahead and reason.code == DEVICES_BUSY else reason

    def of_holder(self, job: Waiting, keep: Keep) -> Reason:
        """Returns why a job waits for which a place is kept."""
        room = keep.room
        wanted, shortage = self._described(job), self._shortage(room, room.want(job))
        return Reason(RESERVED, f"needs {wanted}; {shortage}; {room.host.name} is reserved for this job")

    def _explain(self, job: Waiting) -> Reason:
        count, wanted = job.resources.total_devices, self._described(job)
        rooms = [room for room in self._rooms if room.host.admits(job)]
        if self._rooms and not rooms:
            return Reason(NO_SUCH_WORKER, f"needs {wanted}; {self._why_nowhere(job)}")
        wants = [(room, room.want(job)) for room in rooms]
        most = max(((_usable(room, want), room.host.name) for room, want in wants), default=(0, ""))[0]
        largest = next((room.host.name for room, want in wants if _usable(room, want) == most), "")
        if not most:
            return Reason("no_such_device", f"needs {wanted}; no worker has any")
        if most < count:
            return Reason("too_big", f"needs {wanted}; the largest worker ({largest}) has {most}")
        large = [(room, want) for room, want in wants if _usable(room, want) >= count]
        able = [(room, want) for room, want in large if room.has_rest(want, 0.0, 0.0)]
        if not able:
            return Reason("too_big", f"needs {wanted}; " + "; ".join(_rest(room, want) for room, want in large))
        parts = _folded([(room.host.name, self._shortage(room, want, kept=True)) for room, want in able])
        return Reason(DEVICES_BUSY, f"needs {wanted}; " + "; ".join(parts))

    def _described(self, job: Waiting) -> str:
        """Says what the job asks for: devices, a worker, and what only some hosts have."""
        of_worker = "" if job.resources.worker is None else f" of {job.resources.worker}"
        parts = [f"{job.resources.described}{of_worker}"]
        parts += [
            path for path in job.needs.folders if self._is_on_some(lambda offer, path=path: offer.has_folder(path))
        ]
        python = job.needs.python
        if python is not None and self._is_on_some(lambda offer: offer.has_python(python)):
            parts.append(f"environment {python}")
        return " and ".join(parts)

    def _is_on_some(self, has: Callable[[Offer], bool]) -> bool:
        """Returns whether some hosts have it and some have not: a sentence need not name what all of them have."""
        return has(self._known) and not all(has(room.host.offer) for room in self._rooms)

    def _why_nowhere(self, job: Waiting) -> str:
        """Says why no host admits the job."""
        hosts, worker = [room.host for room in self._rooms], job.resources.worker
        if worker is not None and all(host.name != worker for host in hosts):
            return f"worker {worker} does not answer"
        named = [host for host in hosts if worker in {None, host.name}]
        taking = [host for host in named if host.users is None or job.owner in host.users]
        if not taking:
            return f"{' and '.join(host.name for host in named)} accepts no jobs of {job.owner}"
        for path in job.needs.folders:
            having = [host.name for host in taking if host.offer.has_folder(path)]
            if not having and self._known.has_folder(path):
                there = [host.name for host in hosts if host.offer.has_folder(path)]
                return f"{path} is only on {' and '.join(there) or 'a worker that does not answer'}"
        return "no worker has all of these"

    def _shortage(self, room: Room, want: Want, *, kept: bool = False) -> str:
        """Describes what is free on the host. `kept`: and for whom it is kept."""
        if room.host.draining:
            return f"{room.host.name} is draining"
        key = room.host.id, want.sorts, kept
        if key not in self._devices:
            self._devices[key] = self._describe_devices(room, want, kept=kept)
        free, blocked = self._devices[key]
        rest = [] if room.hosts_rest(want) else [_rest(room, want, *room.rest_held())]
        return "; ".join([free, *rest, *blocked])

    def _describe_devices(self, room: Room, want: Want, *, kept: bool) -> tuple[str, list[str]]:
        """Describes how many devices that suit are free, and why others are blocked."""
        host = room.host
        kinds: set[Kind] = {sort[0] for sort in want.sorts}
        owners = sorted({keep.job.owner for keep in self._keeps.get(host.id, []) if keep.place[1] in kinds})
        parts = [f"{room.count_free(want)} free on {host.name}"]
        if kept and owners:
            parts.append(f", reserved for a job of {' and '.join(owners)}")
        elif preemptors := {owner for kind in kinds for owner in self._preemptors.get((host.id, kind), ())}:
            parts.append(f", where jobs stop for a job of {' and '.join(sorted(preemptors))}")
        devices = [device for device in host.devices if sort_of(device) in want.sorts]
        blocked = [device.blocked for device in devices if device.blocked is not None]
        return "".join(parts), [*dict.fromkeys(blocked)]


def _folded(shortages: Sequence[tuple[str, str]]) -> list[str]:
    """Returns what is free on the hosts, in their order; many that have nothing to tell are counted, not named."""
    named = [shortage for name, shortage in shortages if shortage != f"0 free on {name}"]
    unnamed = len(shortages) - len(named)
    if unnamed <= _MOST_NAMED:
        return [shortage for _, shortage in shortages]
    return [f"0 free on {unnamed} workers", *named]


def _ahead(first: Waiting, job: Waiting) -> str | None:
    if first.group == job.group:
        return None
    if first.priority > job.priority:
        why = "higher priority"
    elif first.submitted <= job.submitted:
        why = "submitted earlier"
    else:
        why = "its owner used less"
    return f"behind a job of {first.owner} ({why})"


def _usable(room: Room, want: Want) -> int:
    """Returns how many devices of the host suit the job, whoever holds or blocks them."""
    return sum(room.counts[sort] for sort in want.sorts)


def _rest(room: Room, want: Want, cpus_held: float = 0.0, memory_held: float = 0.0) -> str:
    """Describes the CPUs and the memory that the host has too few of."""
    parts: list[str] = []
    for wanted, there, held, what in (
        (want.cpus, room.host.cpus, cpus_held, "CPUs"),
        (want.memory_gb, room.host.memory_gb, memory_held, "GiB of memory"),
    ):
        if wanted and there is None:
            parts.append(f"{room.host.name} does not report its {what.split()[-1]}")
        elif there is not None and wanted and held + wanted > there + 1e-9:
            parts.append(f"{max(0.0, there - held):g} of {there:g} {what} free on {room.host.name}")
    return "; ".join(parts)
