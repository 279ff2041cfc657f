"""Submits many jobs of one caller."""

from collections.abc import Mapping

from store.jobs import batches, cycles, idempotency
from store.jobs.idempotency import KeyTaken
from store.jobs.submission_facts import KeyedRequest, Submission
from store.store import Store

MOST = 500
"""Jobs that one transaction stores: others can write after them."""


class Refused(Exception):
    """Nothing is stored, because of these errors of jobs by their indexes."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(errors)} jobs have errors")
        self.errors = errors


def submit(
    store: Store, wanted: Mapping[int, Submission], *, whole: KeyedRequest | None, atomic: bool
) -> dict[int, str | Exception]:
    """Stores up to `MOST` jobs of a batch in one transaction, as `store.jobs.batches.store` does.

    `atomic`: all of them, or none. Raises Refused then, and IdempotencyMismatch and Unavailable.
    """
    if atomic and (errors := cycles.find(wanted)):  # before a transaction, in which others would wait for it
        raise Refused(errors)
    while True:
        try:
            with store.write("submit") as session:
                found = batches.store(session, wanted, whole=whole, atomic=atomic)
                if atomic:
                    _check(found)
                if whole is not None:
                    idempotency.delete_old(session)
        except KeyTaken:
            continue
        return found


def _check(found: Mapping[int, str | Exception]) -> None:
    errors = {index: made for index, made in sorted(found.items()) if isinstance(made, Exception)}
    if errors:
        raise Refused(errors)
