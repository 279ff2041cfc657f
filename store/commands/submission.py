"""Creates jobs: submissions, and retries of jobs that have ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.facts.callers import Caller
from store.facts.submission import KeyedRequest, Submission, Submitted
from store.rows import audit, idempotency, job_facts, submissions
from store.rows import retry as retries
from store.rows.idempotency import Answer, KeyTaken
from store.rows.submissions import Outcome
from store.store import Store
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
    wanted = Submission(spec, caller, visibility, keyed)
    return _once(store, keyed, lambda session: submissions.store_one(session, wanted))


def submit_together(store: Store, wanted: Sequence[Submission]) -> list[Outcome]:
    """Stores jobs in one transaction. Returns for each the stored job, or the error that `submit` would raise.

    None for one that another transaction holds up, such as a slow one of its user: nothing waits for it here, and it
    is to be submitted alone. Raises Unavailable if the transaction is refused: then none of them is stored. The error
    of one alone is raised.
    """
    while True:
        try:
            with store.write("submit") as session:
                found = submissions.store_together(session, wanted)
                if any(each.keyed is not None for each in wanted):
                    idempotency.delete_old(session)
        except KeyTaken:
            continue
        places = store.places(announcement_of(session))
        return [_placed(made, places) if isinstance(made, Submitted) else made for made in found]


def retry(store: Store, job_id: str, *, caller: Caller, keyed: KeyedRequest | None = None) -> Submitted:
    """Submits the spec of an ended job again for the caller, as `store.rows.retry` does.

    Raises what that raises, and Unavailable and IdempotencyMismatch.
    """

    def make(session: Session) -> Submitted:
        known = submissions.find_known(session, keyed)
        if known is not None:
            return known
        job = retries.retry(session, job_id, owner=caller.name, caller=caller)
        audit.add(session, caller, "job.retry", f"{job_id} as {job.id}")
        made = Submitted(job_facts.of(session, job), 201, f"/v1/jobs/{job.id}")
        if keyed is not None:
            idempotency.store_answer(session, keyed, Answer(job.id, made.status, made.location))
        return made

    return _once(store, keyed, make)


def _once(store: Store, keyed: KeyedRequest | None, make: Callable[[Session], Submitted]) -> Submitted:
    while True:
        try:
            with store.write("submit") as session:
                made = make(session)
                if keyed is not None:
                    idempotency.delete_old(session)
        except KeyTaken:
            continue
        return _placed(made, store.places(announcement_of(session)))


def _placed(made: Submitted, places: Mapping[str, int]) -> Submitted:
    place = places.get(made.job.id)
    return made if place is None else replace(made, job=replace(made.job, place=place))
