"""Resolves a spec as a submission would, and tells what its job would wait for. Nothing is stored, or locked."""

from datetime import timedelta

from sqlalchemy.orm import Session

from store.cluster import pools, requested
from store.jobs import after, prospects
from store.jobs.prospects import Foresight
from store.jobs.submission import Submission
from store.notifications import targets
from store.schedules import cron, schedules
from store.team import secrets
from store.team.callers import Caller
from torchyard.contract.cluster.pools import needs_pool
from torchyard.contract.spec.schedule import Schedule
from torchyard.contract.spec.spec import Spec
from torchyard.contract.team.roles import Visibility


def needs_store(spec: Spec) -> bool:
    """Returns whether the database has to be asked for what `resolve_spec` returns."""
    return needs_pool(spec) or bool(spec.after)


def resolve_spec(session: Session, spec: Spec, *, caller: Caller) -> Spec:
    """Returns the spec as a job of the caller would have it.

    Raises InvalidSpec for what no pool has or allows, and for jobs in `after` that are not there.
    """
    return _resolve(session, spec, caller, "private").spec


def foresee(
    session: Session, spec: Spec, *, caller: Caller, visibility: Visibility, max_stop_grace: timedelta
) -> tuple[Spec, Foresight]:
    """Returns the spec as `resolve_spec` does, and what would become of the job if the caller submitted it now.

    `visibility`: the default one. Raises as `resolve_spec` does, and InvalidSpec for GPUs that no worker has, and for
    secrets and targets that the caller does not have. Others may be faster.
    """
    wanted = _resolve(session, spec, caller, visibility)
    requested.check(session, wanted.spec.resources)
    secrets.check(session, caller.name, wanted.spec)
    targets.check(session, caller.name, wanted.spec)
    return wanted.spec, prospects.of_newcomer(session, wanted, max_stop_grace=max_stop_grace)


def find_first_run(session: Session, schedule: Schedule) -> int:
    """Returns when the first run would be due, in microseconds. Raises InvalidSpec for times that never come."""
    return cron.check(schedule, schedules.read_now(session))


def _resolve(session: Session, spec: Spec, caller: Caller, visibility: Visibility) -> Submission:
    with_pool = pools.resolved(session, spec, caller.name)
    return after.checked(session, Submission(with_pool, caller, visibility))
