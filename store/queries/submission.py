"""Resolves a spec before it is submitted, and tells what its job would wait for."""

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from scheduling.reasons import over_quota
from scheduling.snapshot import Waiting
from store.db.database import Snapshots, in_us, now_us
from store.facts.callers import Caller
from store.facts.line import Bucket, Member, Standing
from store.facts.submission import Prospect, Submission
from store.ids import new_id
from store.line.line import line_of
from store.rows import after, gpus, planning, pools, quotas, secrets, targets, usage
from store.rows.credits import credits
from store.rows.shapes import shape
from torchyard.contract.errors import QuotaExceeded
from torchyard.contract.pools import needs_pool
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility


def resolved(store: Snapshots, spec: Spec, *, caller: Caller) -> Spec:
    """Returns the spec as a job of the caller would have it.

    Raises InvalidSpec for what no pool has or allows, and for jobs in `after` that are not there. Asks the database
    only if the spec needs a pool, or has an `after`. Raises Unavailable.
    """
    if not needs_pool(spec) and not spec.after:
        return spec
    with store.read() as session:
        return _resolved(session, spec, caller, "private").spec


def placed(
    store: Snapshots, spec: Spec, *, caller: Caller, visibility: Visibility, max_stop_grace: timedelta
) -> tuple[Spec, Prospect]:
    """Returns the spec as `resolved` does, and what would become of the job if the caller submitted it now.

    `visibility`: the default one. Raises as `resolved` does, and InvalidSpec for GPUs that no worker has, and for
    secrets and targets that the caller does not have. Nothing is stored, and nothing is locked: others may be faster.
    """
    with store.read() as session:
        wanted = _resolved(session, spec, caller, visibility)
        spec = wanted.spec
        gpus.check(session, spec.resources)
        secrets.check(session, caller.name, spec)
        targets.check(session, caller.name, spec)
        return spec, _prospect(session, wanted, max_stop_grace)


def _resolved(session: Session, spec: Spec, caller: Caller, visibility: Visibility) -> Submission:
    with_pool = pools.resolved(session, spec, caller.name)
    return after.checked(session, Submission(with_pool, caller, visibility))


def _prospect(session: Session, wanted: Submission, max_stop_grace: timedelta) -> Prospect:
    spec, owner = wanted.spec, wanted.caller.name
    room = quotas.Room(session, quotas.limits_of_some(session, [owner]), locks=False)
    try:
        room.check(owner, devices=spec.resources.total_devices, priority=spec.priority)
    except QuotaExceeded as error:
        return Prospect(over_quota(error.message))
    if wanted.waits_for is not None:
        return Prospect(wanted.waits_for)
    job = _as_waiting(session, spec, owner)
    standing = Standing(Bucket(owner, spec.resources.device, spec.priority), Member(job.id, job.submitted))
    position = line_of(session).positions(credits(session, {standing.bucket}), [standing])[job.id]
    return Prospect(planning.reason_of(session, job, max_stop_grace=max_stop_grace), position)


def _as_waiting(session: Session, spec: Spec, owner: str) -> Waiting:
    """Returns a job with this spec that was submitted just now."""
    resources = spec.resources.model_dump(mode="json")
    return Waiting(
        id=new_id("job"),
        owner=owner,
        priority=spec.priority,
        shape=shape(owner, resources, preemptible=spec.preemptible, limit=spec.time_limit),
        resources=spec.resources,
        submitted=session.execute(select(now_us())).scalar_one(),
        limit_us=in_us(spec.time_limit),
        preemptible=spec.preemptible,
        usual_us=usage.usual_lengths(session, {owner}).get((owner, spec.trainer)),
    )
