"""Creates jobs: submissions, and retries of jobs that have ended."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import logging

from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.db.database import translated
from store.jobs import idempotency, submissions
from store.jobs.idempotency import KeyTaken
from store.jobs.submission_facts import Retry, Submission, Submitted
from store.jobs.submissions import Outcome
from store.store import Store
from torchyard.contract.errors import Unavailable

logger = logging.getLogger(__name__)


def submit(store: Store, wanted: Submission | Retry) -> Submitted:
    """Stores a new queued job of the caller.

    Raises Unavailable, QuotaExceeded, IdempotencyMismatch, and InvalidSpec for a secret or a bundle that the caller
    does not have, for GPUs that no worker has, and for what its pool does not have or allow; for a retry also what
    `store.jobs.retry.read` does.
    """
    while True:
        try:
            with store.write("submit") as session:
                made = submissions.store_one(session, wanted)
                if wanted.keyed is not None:
                    idempotency.delete_old(session)
        except KeyTaken:
            continue
        return _placed(made, store.places(announcement_of(session)))


def submit_together(store: Store, wanted: Sequence[Submission | Retry]) -> list[Outcome]:
    """Stores jobs in one transaction. Returns for each the stored job, or the error that `submit` would raise.

    None for one that is to be submitted alone: another transaction holds it up, such as a slow one of its user, for
    which nothing waits here, or it is a retry of a job that cannot be retried, or it or another one has an error that
    nobody expects. Raises Unavailable if the transaction is refused: then none of them is stored. The error of one
    alone is raised.
    """
    while True:
        try:
            with store.write("submit") as session:
                found = _stored(session, wanted)
                if any(each.keyed is not None for each in wanted):
                    idempotency.delete_old(session)
        except KeyTaken:
            continue
        except _Unexpected:
            logger.exception("%d submissions are stored one by one", len(wanted))
            return [None] * len(wanted)
        places = store.places(announcement_of(session))
        return [_placed(made, places) if isinstance(made, Submitted) else made for made in found]


class _Unexpected(Exception):
    """One of several has an error that nobody expects. Before the commit: nothing is stored."""


def _stored(session: Session, wanted: Sequence[Submission | Retry]) -> list[Outcome]:
    try:
        with translated():
            return submissions.store_together(session, wanted)
    except (KeyTaken, Unavailable):
        raise
    except Exception as error:
        if len(wanted) == 1:
            raise
        raise _Unexpected from error


def _placed(made: Submitted, places: Mapping[str, int]) -> Submitted:
    place = places.get(made.job.id)
    return made if place is None else replace(made, job=replace(made.job, place=place))
