"""Resolves a spec before it is submitted, and tells what its job would wait for."""

from datetime import timedelta

from sqlalchemy.orm import Session

from store.cluster import gpus, pools
from store.db.database import Snapshots
from store.jobs import after, prospects
from store.jobs.foresight_facts import Foresight
from store.jobs.submission_facts import Submission
from store.notifications import targets
from store.schedules import cron, schedules
from store.team import secrets
from store.team.callers import Caller
from torchyard.contract.pools import needs_pool
from torchyard.contract.schedules import Schedule
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
) -> tuple[Spec, Foresight]:
    """Returns the spec as `resolved` does, and what would become of the job if the caller submitted it now.

    `visibility`: the default one. Raises as `resolved` does, and InvalidSpec for GPUs that no worker has, and for
    secrets and targets that the caller does not have. Nothing is stored, and nothing is locked: others may be faster.
    """
    with store.read() as session:
        wanted = _resolved(session, spec, caller, visibility)
        gpus.check(session, wanted.spec.resources)
        secrets.check(session, caller.name, wanted.spec)
        targets.check(session, caller.name, wanted.spec)
        return wanted.spec, prospects.of_newcomer(session, wanted, max_stop_grace=max_stop_grace)


def first_run(store: Snapshots, schedule: Schedule) -> int:
    """Returns when the first run would be due, in microseconds. Raises InvalidSpec for times that never come."""
    with store.read() as session:
        return cron.check(schedule, schedules.now(session))


def _resolved(session: Session, spec: Spec, caller: Caller, visibility: Visibility) -> Submission:
    with_pool = pools.resolved(session, spec, caller.name)
    return after.checked(session, Submission(with_pool, caller, visibility))
