"""Checkpoints and artifacts of jobs. All of them raise Unavailable, and NotFound as `store.jobs.reads` does."""

from dataclasses import dataclass

from store import pages
from store.db.database import Snapshots
from store.output import artifacts, checkpoints
from store.output.checkpoints_facts import ArtifactFacts, CheckpointFacts
from store.pages import FactPage
from store.sweeps import sweeps
from store.team import access
from store.team.callers import Caller


def listed(
    store: Snapshots, job_id: str, *, caller: Caller, limit: int, after: str | None = None
) -> FactPage[CheckpointFacts]:
    """Returns the job's checkpoints, newest first; with `after` (an id), only older ones.

    Raises InvalidCursor if `after` is no checkpoint of the job.
    """
    with store.read() as session:
        job = access.get(session, job_id, caller)
        found = checkpoints.listed(session, job, limit=limit + 1, after=after)
    return pages.first(found, limit)


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint, and the job that has it."""

    job_id: str
    job_name: str
    checkpoint: CheckpointFacts


def named(store: Snapshots, job_id: str, ref: str, *, caller: Caller) -> NamedCheckpoint:
    """Returns the checkpoint of `ref`: an id, `best`, `latest`, `epoch-N` or `step-N`; or, of a sweep's id, `best`."""
    with store.read() as session:
        job = access.get(session, sweeps.job_named(session, caller, job_id, ref), caller)
        return NamedCheckpoint(job.id, job.name, checkpoints.resolve(session, job, ref))


def artifacts_of(
    store: Snapshots,
    job_id: str,
    *,
    caller: Caller,
    limit: int,
    after: str | None = None,
    path: str | None = None,
    kept: bool = False,
) -> FactPage[ArtifactFacts]:
    """Returns files that the job left, oldest first: behind the one with the id `after`, and at or below `path`.

    `kept`: those of its working folder in place of its artifacts.
    """
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        found = artifacts.after(session, job_id, limit=limit + 1, after=after, path=path, kept=kept)
        return pages.first(found, limit)


def artifact(store: Snapshots, job_id: str, path: str, *, caller: Caller, kept: bool = False) -> ArtifactFacts:
    """Returns the file of this path, among those of the working folder if `kept`."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        return artifacts.get(session, job_id, path, kept=kept)
