"""Artifacts: rows over blobs. A row means that every byte is in the blob store."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, or_, select
from sqlalchemy.orm import Session

from store import pages
from store.blobs import garbage
from store.db import columns
from store.ids import new_id
from store.jobs import jobs
from store.output import limits
from store.output.checkpoints_facts import ArtifactFacts
from store.output.facts import NewArtifact, Room, StoredArtifact
from store.pages import FactPage
from store.tables import Artifact
from store.team import access, quotas
from store.team.callers import Caller
from torchyard.contract.errors import NotFound
from torchyard.contract.files.paths import KEPT


def add(session: Session, job_id: str, *, attempt: int, new: Sequence[NewArtifact]) -> None:
    """Inserts files of the attempt. They replace those of the same paths, of which the blobs become garbage."""
    same = (Artifact.job_id == job_id, Artifact.path.in_([item.path for item in new]))
    garbage.add_blobs(session, session.scalars(select(Artifact.sha256).where(*same)))
    session.execute(delete(Artifact).where(*same), execution_options={"synchronize_session": False})
    rows = [
        {"id": new_id("art"), "job_id": job_id, "attempt": attempt, "path": item.path, "size": item.size}
        | {"sha256": item.sha256, "modified_ns": item.modified_ns, "asked": item.asked}
        for item in new
    ]
    session.execute(insert(Artifact), rows)


def list_artifacts(
    session: Session,
    job_id: str,
    *,
    caller: Caller,
    limit: int,
    after: str | None = None,
    path: str | None = None,
    kept: bool = False,
) -> FactPage[ArtifactFacts]:
    """Returns files of a job that the caller may read, oldest first: after the one with the id `after`, at or below
    `path`.

    `kept`: those of its working folder in place of its artifacts. Raises NotFound.
    """
    access.readable_job(session, job_id, caller)
    return pages.first(list_after(session, job_id, limit=limit + 1, after=after, path=path, kept=kept), limit)


def list_after(
    session: Session,
    job_id: str,
    *,
    limit: int,
    after: str | None = None,
    path: str | None = None,
    kept: bool | None = False,
) -> Sequence[ArtifactFacts]:
    """Returns files of the job, oldest first: after the one with the id `after`, and at or below `path`.

    `kept`: those of its working folder in place of its artifacts; None: both.
    """
    query = columns.select(ArtifactFacts, Artifact).where(Artifact.job_id == job_id).order_by(Artifact.id).limit(limit)
    if kept is not None:
        query = query.where((func.substr(Artifact.path, 1, len(KEPT)) == KEPT) == kept)
    if after is not None:
        query = query.where(Artifact.id > after)
    if path is not None:
        query = query.where(_is_at_or_below(stored_path(path, kept=bool(kept))))
    return [_to_facts(row) for row in session.execute(query)]


def find_artifact(session: Session, job_id: str, path: str, *, caller: Caller, kept: bool = False) -> ArtifactFacts:
    """Returns the file of this path of a job that the caller may read, among those of the working folder if `kept`.

    Raises NotFound.
    """
    access.readable_job(session, job_id, caller)
    stored = stored_path(path, kept=kept)
    query = columns.select(ArtifactFacts, Artifact).where(Artifact.job_id == job_id, Artifact.path == stored)
    row = session.execute(query).first()
    # The path of an artifact never looks like a stored path of the other files.
    if row is None or path.startswith(KEPT):
        raise NotFound(f"job {job_id} has no {'kept file' if kept else 'artifact'} {path[:200]!r}")
    return _to_facts(row)


def read_room(session: Session, job_id: str) -> Room:
    """Returns what is stored of the job, and how much more may be. Raises NotFound."""
    owner = jobs.require(session, job_id).owner
    columns_of = (Artifact.path, Artifact.attempt, Artifact.size, Artifact.modified_ns, Artifact.asked)
    stored = [StoredArtifact(*row) for row in session.execute(select(*columns_of).where(Artifact.job_id == job_id))]
    left = quotas.bytes_left(session, owner)
    return Room(stored, left, media_bytes=limits.sum_media_bytes(session, job_id))


def stored_path(path: str, *, kept: bool) -> str:
    """Returns the path that the row of a file has."""
    return f"{KEPT}{path}" if kept else path


def _to_facts(row: Sequence[Any]) -> ArtifactFacts:
    facts = ArtifactFacts(*row)
    return replace(facts, path=facts.path.removeprefix(KEPT), kept=facts.path.startswith(KEPT))


def _is_at_or_below(path: str) -> ColumnElement[bool]:
    folder = f"{path}/"
    # LIKE ignores case in SQLite.
    return or_(Artifact.path == path, func.substr(Artifact.path, 1, len(folder)) == folder)
