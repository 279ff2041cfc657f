"""Creates jobs: submissions, and retries of jobs that have ended."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from store.facts.callers import Caller
from store.facts.jobs import JobFacts
from store.facts.submission import KeyedRequest, Submitted
from store.rows import audit, bundles, gpus, idempotency, job_facts, jobs, quotas, secrets
from store.rows import retry as retries
from store.rows.idempotency import Answer, KeyTaken
from store.store import Store
from torchyard.contract.bundles import bundles_of
from torchyard.contract.spec import Spec
from torchyard.contract.team import Visibility


def submit(
    store: Store,
    spec: Spec,
    *,
    caller: Caller,
    visibility: Visibility,
    keyed: KeyedRequest | None = None,
) -> Submitted:
    """Stores a new queued job of the caller. `visibility`: the default visibility, for a spec that sets none.

    Raises Unavailable, QuotaExceeded, IdempotencyMismatch, and InvalidSpec for a secret or a bundle that the caller
    does not have, and for GPUs that no worker has.
    """

    def make(session: Session) -> JobFacts:
        quotas.check_submission(session, caller.name, devices=spec.resources.total_devices, priority=spec.priority)
        gpus.check(session, spec.resources)
        secrets.check(session, caller.name, spec)
        named = bundles_of(spec)
        bundles.use(session, caller.name, named)
        job = jobs.submit(session, spec, owner=caller.name, visibility=visibility)
        bundles.record_uses(session, job.id, named)
        audit.add(session, caller, "job.submit", job.id)
        return job_facts.of(session, job)

    return _once(store, keyed, make)


def retry(store: Store, job_id: str, *, caller: Caller, keyed: KeyedRequest | None = None) -> Submitted:
    """Submits the spec of an ended job again for the caller, as `store.rows.retry` does.

    Raises what that raises, and Unavailable and IdempotencyMismatch.
    """

    def make(session: Session) -> JobFacts:
        job = retries.retry(session, job_id, owner=caller.name, caller=caller)
        audit.add(session, caller, "job.retry", f"{job_id} as {job.id}")
        return job_facts.of(session, job)

    return _once(store, keyed, make)


def _once(store: Store, keyed: KeyedRequest | None, make: Callable[[Session], JobFacts]) -> Submitted:
    while True:
        try:
            return _try(store, keyed, make)
        except KeyTaken:
            continue


def _try(store: Store, keyed: KeyedRequest | None, make: Callable[[Session], JobFacts]) -> Submitted:
    with store.write("submit") as session:
        known = idempotency.find_answer(session, keyed) if keyed is not None else None
        if known is not None:
            job = job_facts.of(session, jobs.get(session, known.job_id))
            return Submitted(job, known.status, known.location, replayed=True)
        job = make(session)
        made = Submitted(job, 201, f"/v1/jobs/{job.id}")
        if keyed is not None:
            idempotency.store_answer(session, keyed, Answer(job.id, made.status, made.location))
    return made
