"""Stores the jobs of a batch, and goes on with one whose first part was stored before."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
import hashlib

from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.bundles import bundles
from store.jobs import after, idempotency, initial_weights, submissions
from store.jobs.idempotency import Answer
from store.jobs.submission_facts import KeyedRequest, Submission, Submitted
from store.tables import IdempotencyKey
from store.team import quotas, users
from torchyard.contract.bundles import bundles_of
from torchyard.contract.team import Resource


def store(
    session: Session, wanted: Mapping[int, Submission], *, whole: KeyedRequest | None, atomic: bool = False
) -> dict[int, str | Exception]:
    """Stores jobs of one caller. Returns for each, by its index in the batch, its id or its error.

    `whole`: the batch with its key. Of what it has stored before, the ids are returned.
    `atomic`: all of them are stored, or none, so they may name each other in `after`.
    Raises IdempotencyMismatch, and KeyTaken.
    """
    stored = _stored(session, [*wanted], whole)
    found: dict[int, str | Exception] = {
        index: stored[keyed.owner, keyed.key].job_id
        for index, keyed in _keys([*wanted], whole).items()
        if (keyed.owner, keyed.key) in stored
    }
    missing = {index: each for index, each in wanted.items() if index not in found}
    if not missing:
        return found
    made = submit(session, missing, atomic=atomic)
    ids = {index: each.job.id for index, each in made.items() if isinstance(each, Submitted)}
    if whole is not None and ids:
        names = _keys([*ids], whole)
        answers = [(names[index], _answer(job_id)) for index, job_id in ids.items()]
        if (whole.owner, whole.key) not in stored:
            answers.append((whole, _answer(next(iter(ids.values())))))
        idempotency.store_answers(session, answers)
    errors = {index: each for index, each in made.items() if isinstance(each, Exception)}
    return found | ids | errors


def submit(
    session: Session, wanted: Mapping[int, Submission], *, atomic: bool = False
) -> dict[int, Submitted | Exception]:
    """Stores jobs of one caller, once their sources, user and bundles are locked: several batches take turns.

    Nobody is told their places in the queue. `atomic`: they may name each other in `after`.
    """
    owner = next(iter(wanted.values())).caller.name
    wanted, errors = after.resolved_together(session, wanted, atomic=atomic)
    initial_weights.lock_sources(session, initial_weights.sources_of(each.spec for each in wanted.values()))
    limits = quotas.limits_of_some(session, [owner])
    if Resource.QUEUED in limits.get(owner, {}):
        users.lock(session, owner)
    bundles.lock(session, {(owner, sha256) for each in wanted.values() for sha256 in bundles_of(each.spec).values()})
    made = submissions.store_locked(session, wanted, limits)
    announcement_of(session).newcomers.clear()
    return {**made, **errors}


def _stored(
    session: Session, indexes: Sequence[int], whole: KeyedRequest | None
) -> Mapping[tuple[str, str], IdempotencyKey]:
    """Returns what is stored for the batch and its jobs, by owner and key. Raises IdempotencyMismatch."""
    if whole is None:
        return {}
    asked = [whole, *_keys(indexes, whole).values()]
    found = idempotency.find_answers(session, asked)
    for keyed in asked:
        if (row := found.get((keyed.owner, keyed.key))) is not None:
            idempotency.answer_of(replace(keyed, key=whole.key), row)
    return found


def _keys(indexes: Sequence[int], whole: KeyedRequest | None) -> dict[int, KeyedRequest]:
    """Returns the key of each job of the batch. No user can send one: keys of users have no space."""
    if whole is None:
        return {}
    name = hashlib.sha256(whole.key.encode()).hexdigest()
    return {index: replace(whole, key=f"{name} {index}") for index in indexes}


def _answer(job_id: str) -> Answer:
    return Answer(job_id, 200, f"/v1/jobs/{job_id}")
