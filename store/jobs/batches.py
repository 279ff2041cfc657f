"""Submits many jobs of one caller, and goes on with a batch whose first part was stored before."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
import hashlib

from sqlalchemy.orm import Session

from store.jobs import cycles, idempotency
from store.jobs.submission import KeyedRequest, Submission, Submitted
from store.jobs.submit import in_transaction, submit_each
from store.store import Store
from store.tables import IdempotencyKey

MOST = 500
"""Jobs that one transaction stores: others can write after them."""


class Refused(Exception):
    """Nothing is stored, because of these errors of jobs by their indexes."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(errors)} jobs have errors")
        self.errors = errors


def submit_part(
    store: Store, wanted: Mapping[int, Submission], *, whole: KeyedRequest | None, atomic: bool
) -> dict[int, str | Exception]:
    """Stores up to `MOST` jobs of a batch by a transaction of its own, as `submit` does.

    `atomic`: all of them, or none. Raises Refused then, and IdempotencyMismatch and Unavailable.
    """
    if atomic and (errors := cycles.find(wanted)):  # before a transaction, in which others would wait for it
        raise Refused(errors)
    change = partial(_submit_or_refuse if atomic else submit, wanted=wanted, whole=whole)
    return in_transaction(store, change, keyed=whole is not None)[0]


def submit(
    session: Session, wanted: Mapping[int, Submission], *, whole: KeyedRequest | None, atomic: bool = False
) -> dict[int, str | Exception]:
    """Stores jobs of one caller. Returns for each, by its index in the batch, its id or its error.

    `whole`: the batch with its key. Of what it has stored before, the ids are returned.
    `atomic`: all of them are stored, or none, so they may name each other in `after`.
    Raises IdempotencyMismatch, and KeyTaken.
    """
    stored = _find_stored(session, [*wanted], whole)
    ids = {index: stored[key.identity].job_id for index, key in _keys(wanted, whole).items() if key.identity in stored}
    missing = {index: each for index, each in wanted.items() if index not in ids}
    if not missing:
        return dict(ids)
    outcomes = submit_each(session, missing, atomic=atomic)
    new = {index: each.job.id for index, each in outcomes.items() if isinstance(each, Submitted)}
    if whole is not None and new:
        keys = _keys(new, whole)
        pairs = [(keys[index], job_id) for index, job_id in new.items()]
        if whole.identity not in stored:
            pairs.append((whole, next(iter(new.values()))))
        idempotency.store_keys(session, pairs)
    errors = {index: each for index, each in outcomes.items() if isinstance(each, Exception)}
    return {**ids, **new, **errors}


def _submit_or_refuse(
    session: Session, wanted: Mapping[int, Submission], whole: KeyedRequest | None
) -> dict[int, str | Exception]:
    outcomes = submit(session, wanted, whole=whole, atomic=True)
    errors = {index: each for index, each in sorted(outcomes.items()) if isinstance(each, Exception)}
    if errors:
        raise Refused(errors)
    return outcomes


def _find_stored(
    session: Session, indexes: Sequence[int], whole: KeyedRequest | None
) -> Mapping[tuple[str, str], IdempotencyKey]:
    """Returns what is stored for the batch and its jobs, by owner and key. Raises IdempotencyMismatch."""
    if whole is None:
        return {}
    asked = [whole, *_keys(indexes, whole).values()]
    stored = idempotency.find_keys(session, asked)
    for keyed in asked:
        if (row := stored.get(keyed.identity)) is not None:
            idempotency.job_of(replace(keyed, key=whole.key), row)
    return stored


def _keys(indexes: Iterable[int], whole: KeyedRequest | None) -> dict[int, KeyedRequest]:
    """Returns the key of each job of the batch. No user can send one: keys of users have no space."""
    if whole is None:
        return {}
    name = hashlib.sha256(whole.key.encode()).hexdigest()
    return {index: replace(whole, key=f"{name} {index}") for index in indexes}
