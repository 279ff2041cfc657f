"""Creates jobs: submissions, and retries of jobs that have ended."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from store.db.tables import Job
from store.rows import audit, bundles, idempotency, jobs, quotas, secrets
from store.rows import retry as retries
from store.rows.access import Caller
from store.rows.idempotency import Answer, KeyedRequest, KeyTaken
from store.store import Store
from torchyard.contract.bundles import bundles_of
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility
from torchyard.contract.views.jobs import JobView

Show = Callable[[Session, Job], JobView]
"""Renders a job, in the transaction of its submission."""


@dataclass(frozen=True)
class Submitted:
    """A job that was created by this request or, if `replayed`, by an earlier one with the same key."""

    job: JobView
    status: int
    location: str
    replayed: bool = False


def submit(
    store: Store,
    spec: Spec,
    *,
    caller: Caller,
    visibility: Visibility,
    show: Show,
    show_new: Show,
    keyed: KeyedRequest | None = None,
) -> Submitted:
    """Stores a new queued job of the caller. `visibility` is that of a job whose spec says nothing of it.

    `show_new` renders the job, and `show` that of an earlier request with the same key. Raises Unavailable,
    QuotaExceeded, IdempotencyMismatch, and InvalidSpec for a secret or a bundle that the caller does not have.
    """

    def make(session: Session) -> Job:
        quotas.check_submission(session, caller.name, devices=spec.resources.total_devices, priority=spec.priority)
        secrets.check(session, caller.name, spec)
        named = bundles_of(spec)
        bundles.use(session, caller.name, named)
        job = jobs.submit(session, spec, owner=caller.name, visibility=visibility)
        bundles.record_uses(session, job.id, named)
        audit.record(session, caller, "job.submit", job.id)
        return job

    return _once(store, keyed, make, show=show, show_new=show_new)


def retry(store: Store, job_id: str, *, caller: Caller, show: Show, keyed: KeyedRequest | None = None) -> Submitted:
    """Submits the spec of an ended job again for the caller, as `store.rows.retry` does.

    Raises what that raises, and Unavailable and IdempotencyMismatch.
    """

    def make(session: Session) -> Job:
        job = retries.retry(session, job_id, owner=caller.name, caller=caller)
        audit.record(session, caller, "job.retry", f"{job_id} as {job.id}")
        return job

    return _once(store, keyed, make, show=show, show_new=show)


def _once(
    store: Store, keyed: KeyedRequest | None, make: Callable[[Session], Job], *, show: Show, show_new: Show
) -> Submitted:
    while True:
        try:
            return _try(store, keyed, make, show=show, show_new=show_new)
        except KeyTaken:
            continue


def _try(
    store: Store, keyed: KeyedRequest | None, make: Callable[[Session], Job], *, show: Show, show_new: Show
) -> Submitted:
    with store.write("submit") as session:
        known = idempotency.find_answer(session, keyed) if keyed is not None else None
        if known is not None:
            job = jobs.get(session, known.job_id)
            return Submitted(show(session, job), known.status, known.location, replayed=True)
        row = make(session)
        made = Submitted(show_new(session, row), 201, f"/v1/jobs/{row.id}")
        if keyed is not None:
            idempotency.store_answer(session, keyed, Answer(row.id, made.status, made.location))
    return made
