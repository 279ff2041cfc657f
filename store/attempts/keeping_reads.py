"""Requests to keep files of working folders. All of them raise Unavailable."""

from store.attempts import keeping
from store.attempts.facts import AttemptSecrets
from store.attempts.keeping_facts import KeepFacts, Kept
from store.db.database import Snapshots
from store.jobs import jobs
from store.output import artifacts
from store.output.facts import Room
from store.store import Store
from store.team import secrets
from store.team.callers import Caller


def newest(store: Snapshots, job_id: str, *, caller: Caller) -> KeepFacts:
    """Returns the newest request for the job. Raises as `store.attempts.keeping.read` does."""
    with store.read() as session:
        return keeping.read(session, job_id, caller)


def unanswered(store: Snapshots, worker_id: str, *, limit: int) -> list[Kept]:
    """Does what `store.attempts.keeping.unanswered` does."""
    with store.read() as session:
        return keeping.unanswered(session, worker_id, limit=limit)


def room(store: Snapshots, job_id: str) -> Room:
    """Returns which files of the job are stored, and how many bytes its owner may store besides. Raises NotFound."""
    with store.read() as session:
        jobs.get(session, job_id)
        return artifacts.room(session, job_id)


def secrets_of(store: Store, job_id: str) -> AttemptSecrets:
    """Returns the secrets that the job's spec names, as they are now. Raises NotFound."""
    with store.read() as session:
        return secrets.resolve(session, store.secret_keys, jobs.get(session, job_id))
