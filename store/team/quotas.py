"""Quotas: how much of each resource a user may use, and uses."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal, cast

from sqlalchemy import ColumnElement, Select, delete, exists, func, select
from sqlalchemy.orm import Session

from scheduling.quotas import Allowance
from store.announcement import announcement_of
from store.db.upsert import upsert
from store.tables import Allocation, Attempt, Checkpoint, InitialWeights, Job, ModelVersion, Quota
from store.team import audit, stored_counts, users
from store.team.callers import Caller
from store.team.limits import find_limit, find_limits, find_limits_of
from torchyard.contract.errors import QuotaExceeded
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import DEFAULT_SHARE, Resource
from torchyard.contract.team.views import QuotaUse, QuotaView, UserQuotaView

Kind = Literal["role", "user"]
"""Whose limits: those of each user of a role, or of one user."""

_CLAIMED = (Resource.DEVICES, Resource.RUNNING)
COUNTED = "checkpoints, models, artifacts, media, metrics, logs, bundles, specs and notes"
"""What `Resource.STORED_BYTES` counts."""
_VERSION = (ModelVersion.owner, ModelVersion.name, ModelVersion.version)
_WAITING = (JobState.QUEUED, JobState.PAUSED)


def stored_bytes(session: Session, owner: str) -> int:
    """Returns the bytes of what the user's jobs have stored, of the user's models and bundles, and of what requests
    have written for the user, beyond those that are free.

    Jobs store checkpoints, artifacts, media, metric points, log lines and messages. What was trimmed counts no more. A
    checkpoint of the user's that is a version of a model, or of several, counts once. What was removed counts while a
    job of the user's that starts from it has not ended.
    """
    others = (_select_initial().where(Job.owner == owner), _select_kept(owner))
    return stored_counts.count(session, owner).counted + sum(int(session.execute(each).scalar_one()) for each in others)


def bytes_left(session: Session, owner: str) -> int | None:
    """Returns how many more bytes the user may store; None without a limit."""
    most = find_limit(session, owner, Resource.STORED_BYTES)
    return None if most is None else max(0, most - stored_bytes(session, owner))


def check_upload(session: Session, owner: str, size: int, *, unfinished: int = 0) -> None:
    """Raises QuotaExceeded if the user may not store a bundle of that size. `unfinished`: bytes of other uploads."""
    most = find_limit(session, owner, Resource.STORED_BYTES)
    if most is not None and (stored := stored_bytes(session, owner)) + unfinished + size > most:
        others = f" and unfinished uploads {unfinished}" if unfinished else ""
        raise QuotaExceeded(
            f"the bundle has {size} bytes; {COUNTED} of {owner} use {stored}{others} of {most} bytes: "
            "delete bundles or jobs"
        )


def check_kept(session: Session, owner: str, kept: str) -> None:
    """Raises QuotaExceeded if the user has more than they may, with a version of a model that was just added."""
    most = find_limit(session, owner, Resource.STORED_BYTES)
    if most is not None and (stored := stored_bytes(session, owner)) > most:
        raise QuotaExceeded(
            f"with {kept}, {COUNTED} of {owner} would use {stored} of {most} bytes: delete jobs, models or bundles"
        )


def queued_jobs(session: Session, owner: str) -> int:
    """Returns the number of the user's jobs that wait: queued and paused ones."""
    query = select(func.count()).select_from(Job).where(Job.owner == owner, Job.state.in_(_WAITING))
    return session.execute(query).scalar_one()


def allowances(session: Session, owners: Collection[str]) -> dict[str, Allowance]:
    """Returns the allowances of those of `owners` whose running jobs are limited."""
    allowances = {
        owner: Allowance(owner, limits.get(Resource.DEVICES), limits.get(Resource.RUNNING))
        for owner, limits in find_limits_of(session, owners).items()
        if limits.keys() & _CLAIMED
    }
    return _counted(session, allowances) if allowances else {}


def shares(session: Session, owners: Collection[str]) -> dict[str, int]:
    """Returns the parts in the devices, compared to each other, of those of `owners` who have not the default."""
    by_owner = find_limits_of(session, owners)
    return {owner: limits[Resource.SHARE] for owner, limits in by_owner.items() if Resource.SHARE in limits}


def find_usage(session: Session, owner: str) -> UserQuotaView:
    """Returns what a user may use, and uses. Raises NotFound."""
    users.find(session, owner)
    limits = {Resource.SHARE: DEFAULT_SHARE, **find_limits(session, owner)}
    used = count_usage(session, owner)
    uses = [QuotaUse(resource=each, limit=limits.get(each), used=used.get(each)) for each in Resource]
    return UserQuotaView(user=owner, uses=uses)


def count_usage(session: Session, owner: str) -> dict[Resource, int]:
    """Returns how much the user uses of each resource that can be counted."""
    counted = _counted(session, {owner: Allowance(owner, None, None)})[owner]
    return {
        Resource.DEVICES: counted.held,
        Resource.RUNNING: counted.runs,
        Resource.QUEUED: queued_jobs(session, owner),
        Resource.STORED_BYTES: stored_bytes(session, owner),
    }


def claim_refusal(session: Session, owner: str, *, devices: int) -> str | None:
    """Returns why the user's quota forbids to start a job with so many devices, None if it does not.

    Until the end of the transaction no other job of the user starts.
    """
    if not find_limits(session, owner).keys() & _CLAIMED:
        return None
    users.lock(session, owner)
    allowance = allowances(session, [owner]).get(owner)
    return None if allowance is None else allowance.refusal(devices)


class Room:
    """What quotas leave for the submissions of one transaction. What users have is counted once."""

    def __init__(self, session: Session, limits: Mapping[str, Mapping[Resource, int]]) -> None:
        """`limits`: those of every user who has any. Who stores jobs locks the users whose queued jobs are limited."""
        self._session = session
        self._limits = limits
        self._queued: dict[str, int] = {}
        self._stored: set[str] = set()
        """Users whose stored bytes leave room."""

    def check(self, owner: str, *, devices: int, priority: int) -> None:
        """Raises QuotaExceeded if the user may not submit such a job, beside those that were taken."""
        limits = self._limits.get(owner, {})
        check_devices(owner, devices, limits)
        check_priority(owner, priority, limits)
        if (most := limits.get(Resource.QUEUED)) is not None:
            if owner not in self._queued:
                self._queued[owner] = queued_jobs(self._session, owner)
            _check_queued(owner, self._queued[owner], most=most)
        if owner not in self._stored:
            check_stored(self._session, owner, limits)
            self._stored.add(owner)

    def take(self, owner: str) -> None:
        """Counts one more job of the user."""
        if owner in self._queued:
            self._queued[owner] += 1


def check_devices(owner: str, devices: int, limits: Mapping[Resource, int]) -> None:
    """Raises QuotaExceeded if no job of the user may hold so many devices."""
    if (most := limits.get(Resource.DEVICES)) is not None and devices > most:
        raise _too_small(f"the job requests {devices} devices; the quota of {owner} is {most} devices at once")


def check_stored(session: Session, owner: str, limits: Mapping[Resource, int]) -> None:
    """Raises QuotaExceeded if the user has stored as much as they may: then no further attempt may be asked for."""
    if (most := limits.get(Resource.STORED_BYTES)) is not None and (stored := stored_bytes(session, owner)) >= most:
        raise QuotaExceeded(f"{COUNTED} of {owner} use {stored} of {most} bytes: delete jobs or bundles")


def check_written(session: Session, owner: str) -> None:
    """Raises QuotaExceeded if nothing more may be written for the user: no sweep, no schedule and no notes."""
    check_stored(session, owner, find_limits(session, owner))


def check_priority(owner: str, priority: int, limits: Mapping[Resource, int]) -> None:
    """Raises QuotaExceeded if the user's jobs may not have this priority."""
    if (most := limits.get(Resource.PRIORITY)) is not None and priority > most:
        raise _too_small(f"priority is {priority}; the maximum of {owner} is {most}")


def list_all(session: Session) -> list[QuotaView]:
    """Returns all quotas, of roles and then of users, by name."""
    query = select(Quota.kind, Quota.name, Quota.resource, Quota.limit)
    limits = defaultdict[tuple[Kind, str], dict[Resource, int | None]](dict)
    for kind, name, resource, limit in session.execute(query.order_by(Quota.kind, Quota.name, Quota.resource)):
        limits[cast("Kind", kind), name][Resource(resource)] = limit
    return [QuotaView(kind=kind, name=name, limits=set_for) for (kind, name), set_for in limits.items()]


def set_limits(
    session: Session, kind: Kind, name: str, limits: Mapping[Resource, int | None], *, caller: Caller
) -> None:
    """Sets limits of a user or of a role. None: unlimited, whatever the role's limit is.

    Raises NotFound if there is no such user.
    """
    if kind == "user":
        users.find(session, name)
    for resource, limit in limits.items():
        new = upsert(session, Quota).values(kind=kind, name=name, resource=resource, limit=limit)
        session.execute(new.on_conflict_do_update(index_elements=["kind", "name", "resource"], set_={"limit": limit}))
    announcement_of(session).wake_workers()
    written = " ".join(f"{resource}={limit}" for resource, limit in limits.items())
    audit.add(session, caller, "quota.set", f"{kind} {name}: {written}")


def clear(session: Session, kind: Kind, name: str, resources: Collection[Resource], *, caller: Caller) -> None:
    """Removes limits of a user or of a role: then the role's hold, or none. Raises NotFound for no such user."""
    if kind == "user":
        users.find(session, name)
    session.execute(delete(Quota).where(Quota.kind == kind, Quota.name == name, Quota.resource.in_(resources)))
    announcement_of(session).wake_workers()
    audit.add(session, caller, "quota.clear", f"{kind} {name}: {' '.join(resources)}")


def _too_small(message: str) -> QuotaExceeded:
    error = QuotaExceeded(message)
    error.may_pass = False
    return error


def _check_queued(owner: str, queued: int, *, most: int) -> None:
    if queued >= most:
        raise QuotaExceeded(f"{owner} has {queued} queued or paused jobs; the maximum is {most}: wait, or cancel some")


def _select_kept(owner: str) -> Select[int]:
    """Selects the bytes of checkpoints in the user's models, without those that count as checkpoints of their jobs."""
    listed = exists().where(Checkpoint.id == ModelVersion.checkpoint_id, Checkpoint.removed_at.is_(None))
    listed = listed.where(Job.id == Checkpoint.job_id, Job.owner == owner)
    kept = select(ModelVersion.checkpoint_id, ModelVersion.size).where(ModelVersion.owner == owner, ~listed).distinct()
    return select(func.coalesce(func.sum(kept.subquery().c.size), 0))


def _select_initial() -> Select[int]:
    """Selects the bytes of what jobs start from that is removed."""
    listed = exists().where(Checkpoint.id == InitialWeights.source_checkpoint, Checkpoint.removed_at.is_(None))
    version = (InitialWeights.model_owner, InitialWeights.model_name, InitialWeights.model_version)
    kept = exists().where(*(column == named for column, named in zip(_VERSION, version, strict=True)))
    total = select(func.coalesce(func.sum(InitialWeights.size), 0)).join(Job, Job.id == InitialWeights.job_id)
    return total.where(~listed, ~kept)


def _counted(session: Session, allowances: Mapping[str, Allowance]) -> dict[str, Allowance]:
    """Returns the allowances with the devices and the open attempts of the users' jobs.

    An attempt in a pool counts by what it has asked for, whatever its nodes have reported of their devices.
    """
    theirs: ColumnElement[bool] = Job.owner.in_(allowances)
    runs = select(Job.owner, func.count(), func.sum(Attempt.pool_devices)).join(Attempt, Attempt.job_id == Job.id)
    runs = runs.where(theirs, Attempt.ended_at.is_(None)).group_by(Job.owner)
    held = select(Job.owner, func.count()).join(Attempt, Attempt.job_id == Job.id)
    held = held.join(Allocation, Allocation.attempt_id == Attempt.id)
    held = held.where(theirs, Allocation.released_at.is_(None), Attempt.pool_devices == 0).group_by(Job.owner)
    devices = dict(session.execute(held).all())
    counted = {owner: (devices.get(owner, 0) + int(in_pools), jobs) for owner, jobs, in_pools in session.execute(runs)}
    none = 0, 0
    return {
        owner: replace(allowance, held=counted.get(owner, none)[0], runs=counted.get(owner, none)[1])
        for owner, allowance in allowances.items()
    }
