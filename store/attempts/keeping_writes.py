"""Requests to keep files of working folders, and their answers by workers. All of them raise Unavailable."""

from collections.abc import Sequence

from store.attempts import keeping
from store.attempts.keeping_facts import KeepFacts, Kept
from store.output.facts import NewArtifact
from store.store import Store
from store.team import audit
from store.team.callers import Caller


def ask(store: Store, job_id: str, paths: Sequence[str], *, caller: Caller) -> KeepFacts:
    """Does what `store.attempts.keeping.request` does."""
    with store.write("keep") as session:
        found = keeping.request(session, job_id, paths, caller)
        audit.add(session, caller, "job.keep", job_id)
        return found


def store_files(store: Store, worker_id: str, kept: Kept, new: Sequence[NewArtifact], *, copied: int) -> None:
    """Stores files of an unanswered request, whose blobs are published, and how many bytes were copied for it.

    Raises StaleClaim if it is gone.
    """
    with store.write("store_kept") as session:
        keeping.store(session, worker_id, kept, new, copied=copied)


def answer(store: Store, worker_id: str, kept: Kept, *, refused: str | None) -> None:
    """Ends a request. `refused`: why nothing was stored, or what was not. Raises StaleClaim if it is gone."""
    with store.write("answer_keep") as session:
        keeping.answer(session, worker_id, kept, refused=refused)
