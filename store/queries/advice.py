"""Reads what advice about a job is made of, besides what its view has. Each read is bounded."""

from contextlib import closing
from itertools import islice
import tarfile
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.blobs import Blobs
from store.db.database import now_us
from store.db.tables import Attempt, Job, JobEvent, LogChunk, Worker
from store.rows import logs, workers
from store.rows.logs import Line
from torchyard.contract.errors import NotFound

_MOST_LINES = 300
_MOST_MEMBERS = 2000
_MOST_CHUNKS, _MOST_CHARACTERS = 400, 4 << 20
"""How much of the end of a log is looked at for the lines of one rank, at most."""


def last_lines(session: Session, job: Job, *, rank: int | None) -> list[Line]:
    """Returns the last lines of the newest attempt, of one rank or of all, oldest first: at most 300.

    They are looked for in the last 400 chunks and 4 Mi characters of the log.
    """
    query = select(LogChunk).where(LogChunk.job_id == job.id).order_by(LogChunk.first.desc()).limit(_MOST_CHUNKS)
    newest_first: list[Line] = []
    characters = 0
    with closing(session.scalars(query.execution_options(yield_per=16))) as chunks:
        for chunk in chunks:
            characters += len(chunk.text)
            if chunk.attempt == job.attempt and rank in {None, chunk.rank}:
                newest_first += reversed(logs.lines(chunk))
            if len(newest_first) >= _MOST_LINES or characters > _MOST_CHARACTERS or chunk.attempt < job.attempt:
                break
    return newest_first[:_MOST_LINES][::-1]


def last_failure(session: Session, job: Job) -> dict[str, Any] | None:
    """Returns how the job failed, or how the attempt did after which it is queued again; None if neither is so."""
    if job.error is not None:
        return job.error
    query = select(JobEvent.data).where(JobEvent.job_id == job.id, JobEvent.type == "state")
    newest = session.scalar(query.order_by(JobEvent.seq.desc()).limit(1))
    return None if newest is None else newest.get("error")


def silence_us(session: Session, job: Job) -> int | None:
    """Returns how long ago the newest attempt last reported something, in microseconds. None: it has not yet.

    It is measured by the database's clock, and only of the event log, as a stall is.
    """
    newest = select(now_us() - Attempt.reported_at).where(Attempt.job_id == job.id, Attempt.number == job.attempt)
    return session.scalar(newest)


def bundle_has(blobs: Blobs, sha256: str, name: str) -> bool:
    """Returns whether a bundle has a file of this name among its first 2000. False if it is gone. Raises OSError."""
    try:
        with blobs.open(sha256) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            return any(member.name == name for member in islice(tar, _MOST_MEMBERS))
    except (NotFound, tarfile.TarError):
        return False


def worker_of(session: Session, job: Job) -> tuple[Worker, bool] | None:
    """Returns the worker of the open attempt, and whether it was seen lately. None if no attempt is open."""
    open_attempt = select(Attempt.worker_id).where(Attempt.job_id == job.id, Attempt.ended_at.is_(None))
    worker_id = session.scalar(open_attempt)
    return None if worker_id is None else workers.get(session, worker_id)
