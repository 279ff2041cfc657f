"""Submits jobs of several clients by one transaction: for who comes while all threads of `api.submissions` are busy.

A commit waits for the disk, and fifty jobs need as many statements as one. With a transaction for each job, 16 clients
had half as many accepted, on SQLite and on PostgreSQL, and each cost twice the processor time (decision 142). Nobody
may hold up the others: a job for which another transaction has locked something is left out here, and submitted alone.
Each job has its own answer or error.
"""

from collections.abc import Mapping, Sequence
from functools import partial
import logging

from sqlalchemy.orm import Session

from store.bundles import bundles
from store.db.database import translated
from store.jobs import initial_weights, retry
from store.jobs.idempotency import KeyTaken
from store.jobs.submission import Retry, Submission, Submitted
from store.jobs.submit import Limits, in_transaction, submit_locked, with_position
from store.store import Store
from store.team import users
from store.team.limits import find_limits_of
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.errors import Unavailable
from torchyard.contract.team.roles import Resource

logger = logging.getLogger(__name__)

Outcome = Submitted | Exception | None
"""None if it is to be submitted alone."""


def submit_together(store: Store, wanted: Sequence[Submission | Retry]) -> list[Outcome]:
    """Stores jobs in one transaction. Returns for each the job, or the error that `submit_alone` would raise.

    None for one that is to be submitted alone: another transaction holds it up, such as a slow one of its user, for
    which nothing waits here, or it is a retry of a job that cannot be retried, or it or another one has an error that
    nobody expects. Raises Unavailable if the transaction is refused: then none of them is stored. The error of one
    alone is raised.
    """
    keyed = any(each.keyed is not None for each in wanted)
    try:
        outcomes, positions = in_transaction(store, partial(_submit_expected, wanted=wanted), keyed=keyed)
    except _Unexpected:
        logger.exception("storing %d submissions one by one", len(wanted))
        return [None] * len(wanted)
    return [with_position(each, positions) if isinstance(each, Submitted) else each for each in outcomes]


def submit_free(session: Session, wanted: Sequence[Submission | Retry]) -> list[Outcome]:
    """Stores those of the jobs for which no other transaction has locked anything."""
    # Who names jobs in `after` may have to wait for them: alone.
    new = {index: each for index, each in retry.read_free(session, wanted).items() if not each.spec.after}
    limits = find_limits_of(session, {each.caller.name for each in new.values()})
    free = _lock_free(session, new, limits)
    outcomes = submit_locked(session, free, limits, alone=len(wanted) == 1)
    return [outcomes.get(index) for index in range(len(wanted))]


class _Unexpected(Exception):
    """One of several has an error that nobody expects. Before the commit: nothing is stored."""


def _submit_expected(session: Session, wanted: Sequence[Submission | Retry]) -> list[Outcome]:
    try:
        with translated():
            return submit_free(session, wanted)
    except (KeyTaken, Unavailable):
        raise
    except Exception as error:
        if len(wanted) == 1:
            raise
        raise _Unexpected from error


def _lock_free(session: Session, wanted: Mapping[int, Submission], limits: Limits) -> Mapping[int, Submission]:
    """Locks the jobs they start from, users and bundles, as far as they are free. Returns those that have theirs."""
    sources = {index: initial_weights.sources_of([each.spec]) for index, each in wanted.items()}
    held_sources = initial_weights.lock_free_sources(session, set[str]().union(*sources.values()))
    counted = {owner for owner, theirs in limits.items() if Resource.QUEUED in theirs}
    held_users = counted - users.lock_free(session, counted) if counted else set[str]()
    named = {
        index: {(each.caller.name, sha256) for sha256 in bundles_of(each.spec).values()}
        for index, each in wanted.items()
    }
    held_bundles = bundles.lock_free(session, set[tuple[str, str]]().union(*named.values()))
    return {
        index: each
        for index, each in wanted.items()
        if each.caller.name not in held_users
        and held_bundles.isdisjoint(named[index])
        and held_sources.isdisjoint(sources[index])
    }
