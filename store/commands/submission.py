"""Creates jobs: submissions, and retries of jobs that have ended."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlalchemy.orm import Session

from store.db.tables import Job
from store.facts.callers import Caller
from store.facts.jobs import JobFacts
from store.facts.submission import KeyedRequest, Submission, Submitted
from store.rows import audit, bundles, gpus, idempotency, job_facts, jobs, quotas, savepoints, secrets, users
from store.rows import retry as retries
from store.rows.idempotency import Answer, KeyTaken
from store.store import Store
from torchyard.contract.bundles import bundles_of
from torchyard.contract.spec import Spec
from torchyard.contract.team import Resource, Visibility

_Limits = Mapping[str, Mapping[Resource, int]]
"""Of each user who has any."""


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
    wanted = Submission(spec, caller, visibility, keyed)

    def make(session: Session) -> JobFacts:
        limits = quotas.limits_of_some(session, [caller.name])
        return job_facts.of_new(session, [_store(session, wanted, limits)])[0]

    return _once(store, keyed, make)


def submit_together(store: Store, wanted: Sequence[Submission]) -> list[Submitted | Exception | None]:
    """Stores jobs in one transaction. Returns for each what it became, or the error that `submit` would raise.

    None for one that another transaction holds up, such as a slow one of its user: nothing waits for it here, and it
    is to be submitted alone. Raises Unavailable if the transaction is refused: then none of them is stored.
    """
    if len(wanted) == 1:
        return [_submit_one(store, wanted[0])]
    return _commit(store, wanted, attempt=_attempt)


def retry(store: Store, job_id: str, *, caller: Caller, keyed: KeyedRequest | None = None) -> Submitted:
    """Submits the spec of an ended job again for the caller, as `store.rows.retry` does.

    Raises what that raises, and Unavailable and IdempotencyMismatch.
    """

    def make(session: Session) -> JobFacts:
        job = retries.retry(session, job_id, owner=caller.name, caller=caller)
        audit.add(session, caller, "job.retry", f"{job_id} as {job.id}")
        return job_facts.of(session, job)

    return _once(store, keyed, make)


def _submit_one(store: Store, wanted: Submission) -> Submitted | Exception | None:
    while True:
        try:
            return _commit(store, [wanted], attempt=_find_or_store)[0]
        except KeyTaken:
            continue
        except Exception as error:  # noqa: BLE001 - it is the answer
            return error


def _commit(
    store: Store,
    wanted: Sequence[Submission],
    *,
    attempt: Callable[[Session, Submission, _Limits], Submitted | Job | Exception],
) -> list[Submitted | Exception | None]:
    with store.write("submit") as session:
        limits = quotas.limits_of_some(session, {each.caller.name for each in wanted})
        free = _lock_free(session, wanted, limits)
        order = sorted(free, key=lambda place: _key(wanted[place]))
        found: dict[int, Submitted | Job | Exception] = {
            place: attempt(session, wanted[place], limits) for place in order
        }
        if any(each.keyed for each in wanted):
            idempotency.delete_old(session)
        new = {place: job for place, job in found.items() if isinstance(job, Job)}
        facts = dict(zip(new, job_facts.of_new(session, [*new.values()]), strict=True))
    made = {place: Submitted(job, 201, _location(job.id)) for place, job in facts.items()}
    return [made.get(place) or _refused(found.get(place)) for place in range(len(wanted))]


def _lock_free(session: Session, wanted: Sequence[Submission], limits: _Limits) -> list[int]:
    """Locks users and then bundles, as far as they are free. Returns the submissions that have theirs."""
    counted = {name for name, theirs in limits.items() if Resource.QUEUED in theirs}
    held_users = counted - users.lock_free(session, counted) if counted else set[str]()
    named = [{(each.caller.name, sha256) for sha256 in bundles_of(each.spec).values()} for each in wanted]
    held_bundles = bundles.lock_free(session, set[tuple[str, str]]().union(*named))
    return [
        place
        for place, each in enumerate(wanted)
        if each.caller.name not in held_users and held_bundles.isdisjoint(named[place])
    ]


def _key(wanted: Submission) -> tuple[str, str]:
    return (wanted.caller.name, wanted.keyed.key if wanted.keyed is not None else "")


def _attempt(session: Session, wanted: Submission, limits: _Limits) -> Submitted | Job | Exception:
    """Stores one of several jobs, and the answer for its key."""
    while True:
        made = savepoints.attempt(session, partial(_find_or_store, session, wanted, limits))
        if not isinstance(made, KeyTaken):
            return made


def _find_or_store(session: Session, wanted: Submission, limits: _Limits) -> Submitted | Job:
    known = _known(session, wanted.keyed)
    if known is not None:
        return known
    job = _store(session, wanted, limits)
    if wanted.keyed is not None:
        idempotency.store_answer(session, wanted.keyed, Answer(job.id, 201, _location(job.id)))
    return job


def _store(session: Session, wanted: Submission, limits: _Limits) -> Job:
    spec, owner = wanted.spec, wanted.caller.name
    quotas.check_submission(
        session,
        owner,
        devices=spec.resources.total_devices,
        priority=spec.priority,
        limits=limits.get(owner, {}),
    )
    gpus.check(session, spec.resources)
    secrets.check(session, owner, spec)
    named = bundles_of(spec)
    bundles.use(session, owner, named)
    job = jobs.submit(session, spec, owner=owner, visibility=wanted.visibility)
    bundles.record_uses(session, job.id, named)
    audit.add(session, wanted.caller, "job.submit", job.id)
    return job


def _refused(found: Submitted | Job | Exception | None) -> Submitted | Exception | None:
    assert not isinstance(found, Job)
    return found


def _once(store: Store, keyed: KeyedRequest | None, make: Callable[[Session], JobFacts]) -> Submitted:
    while True:
        try:
            return _try(store, keyed, make)
        except KeyTaken:
            continue


def _try(store: Store, keyed: KeyedRequest | None, make: Callable[[Session], JobFacts]) -> Submitted:
    with store.write("submit") as session:
        known = _known(session, keyed)
        if known is not None:
            return known
        job = make(session)
        made = Submitted(job, 201, _location(job.id))
        if keyed is not None:
            idempotency.store_answer(session, keyed, Answer(job.id, made.status, made.location))
            idempotency.delete_old(session)
    return made


def _known(session: Session, keyed: KeyedRequest | None) -> Submitted | None:
    """Returns the answer that an earlier request with the key got."""
    known = idempotency.find_answer(session, keyed) if keyed is not None else None
    if known is None:
        return None
    job = job_facts.of(session, jobs.get(session, known.job_id))
    return Submitted(job, known.status, known.location, replayed=True)


def _location(job_id: str) -> str:
    return f"/v1/jobs/{job_id}"
