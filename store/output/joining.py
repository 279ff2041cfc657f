"""Joins points that were stored in many short chunks to few long ones: reading a row for each point takes long.

Positions are divided into blocks. When a block is complete, the points of each series in it are joined, those of one
attempt and of neighbouring chunks. Every point keeps its position, and the order of its series stays, so that
timelines and series are the same before and after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import Row, and_, delete, func, insert, select, update
from sqlalchemy.orm import Session

from store.jobs import jobs
from store.output.metrics import BATCH
from store.tables import NEVER_TRIMMED, Job, PointChunk
from torchyard.contract.states import JobState

_Row: TypeAlias = "Row[int, int, int, int | None]"

BLOCK = 1 << 13
"""Positions of a block. A joined chunk begins and ends in one, but for the points of its last batch."""
LONG = 256
"""Points of a chunk that is long enough as it is."""
_MOST_POINTS = 4096
"""Points of a joined chunk, but for those of its last batch."""
_BLOCKS_PER_READ = 64
CHUNKS_PER_TRANSACTION = 2000
_JOBS_PER_PASS = 500
_JOINED = NEVER_TRIMMED
"""Sentinel: the job has ended, and all its points are joined."""
_UNFINISHED = (JobState.STARTING, JobState.RUNNING, JobState.PAUSED)


@dataclass(frozen=True)
class Stretch:
    """Points of a series that are to be joined: the chunks that begin at `begin` or later, and before `end`."""

    series_id: int
    begin: int
    end: int


@dataclass(frozen=True)
class Due:
    """What is to be joined of a job. Its points are joined up to `end` when all `stretches` are."""

    stretches: Sequence[Stretch]
    end: int


def list_jobs_to_join(session: Session) -> Sequence[str]:
    """Returns some of the jobs that have blocks which are complete and not joined."""
    complete = and_(Job.state.in_(_UNFINISHED), Job.position - Job.points_joined_to >= BLOCK)
    ended = and_(Job.finished_at.is_not(None), Job.points_joined_to < _JOINED)
    job_ids: list[str] = []
    for wanted in (complete, ended):
        job_ids += session.scalars(select(Job.id).where(wanted).limit(_JOBS_PER_PASS))
    return job_ids


def find_due(session: Session, job_id: str) -> Due | None:
    """Returns what is to be joined next of the job; None if nothing is left."""
    job = session.execute(
        select(Job.position, Job.points_joined_to, Job.finished_at).where(Job.id == job_id)
    ).one_or_none()
    if job is None or job.points_joined_to == _JOINED:
        return None
    begin, ended = job.points_joined_to, job.finished_at is not None
    end = (job.position // BLOCK + 1) * BLOCK if ended else (job.position + 1) // BLOCK * BLOCK
    if end <= begin and not ended:
        return None
    until = min(end, begin + _BLOCKS_PER_READ * BLOCK)
    block = (PointChunk.first // BLOCK).label("block")
    query = select(PointChunk.series_id, block).where(
        PointChunk.job_id == job_id,
        PointChunk.first >= begin,
        PointChunk.first < until,
        PointChunk.last.is_(None),
        PointChunk.count < LONG,
    )
    short = session.execute(query.group_by(PointChunk.series_id, block).having(func.count() > 1))
    stretches = [Stretch(row.series_id, row.block * BLOCK, (row.block + 1) * BLOCK) for row in short]
    return Due(stretches, _JOINED if ended and until >= end else until)


def join(session: Session, job_id: str, stretch: Stretch) -> Stretch | None:
    """Joins the first chunks of the stretch, and returns what is left of it; None if nothing is.

    Locks the job: then neither is it deleted meanwhile, nor do two workers join the same chunks.
    """
    if jobs.lock(session, job_id) is None:
        return None
    chunks = PointChunk.series_id == stretch.series_id
    columns = (PointChunk.first, PointChunk.attempt, PointChunk.count.label("points"), PointChunk.last)
    query = select(*columns).where(chunks, PointChunk.first >= stretch.begin, PointChunk.first < stretch.end)
    rows = session.execute(query.order_by(PointChunk.first).limit(CHUNKS_PER_TRANSACTION)).all()
    for run in _runs(rows):
        first, last = run[0].first, run[-1].first
        of_run = and_(chunks, PointChunk.first >= first, PointChunk.first <= last)
        data = session.scalars(select(PointChunk.data).where(of_run).order_by(PointChunk.first)).all()
        session.execute(delete(PointChunk).where(of_run), execution_options={"synchronize_session": False})
        session.execute(
            insert(PointChunk).values(
                series_id=stretch.series_id,
                first=first,
                job_id=job_id,
                attempt=run[0].attempt,
                count=sum(row.points for row in run),
                data=b"".join(data),
                last=last + run[-1].points - 1,
                places=b"".join([BATCH.pack(row.first, row.points) for row in run]),
            )
        )
    if len(rows) < CHUNKS_PER_TRANSACTION:
        return None
    return Stretch(stretch.series_id, rows[-1].first + 1, stretch.end)


def mark_joined(session: Session, job_id: str, *, end: int) -> None:
    """Notes that the job's points before `end` are joined."""
    change = update(Job).where(Job.id == job_id, Job.points_joined_to < end).values(points_joined_to=end)
    session.execute(change, execution_options={"synchronize_session": False})


def _runs(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    """Yields the neighbouring short chunks of one attempt, two or more at once."""
    run: list[_Row] = []
    points = 0
    for row in rows:
        short = row.last is None and row.points < LONG
        if run and not (short and row.attempt == run[0].attempt and points < _MOST_POINTS):
            yield from [run] if len(run) > 1 else ()
            run, points = [], 0
        if short:
            run.append(row)
            points += row.points
    if len(run) > 1:
        yield run
