"""Lines of jobs' output. All of them raise Unavailable, and NotFound as `store.jobs.reads` does."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from store.db.database import Snapshots
from store.output import logs
from store.output.facts import Line, Lines, LogFilter
from store.pages import FactPage
from store.tables import Job
from store.team import access
from store.team.callers import Caller


@dataclass(frozen=True)
class LogExtent:
    """A job's name, and how many lines it has."""

    name: str
    lines: int


def extent(store: Snapshots, job_id: str, *, caller: Caller) -> LogExtent:
    """Returns how much output the job has."""
    with store.read() as session:
        return LogExtent(*access.readable_job(session, job_id, caller, Job.name, Job.log_lines))


def lines(
    store: Snapshots,
    job_id: str,
    *,
    caller: Caller,
    where: LogFilter,
    limit: int,
    after: int = 0,
    before: int | None = None,
) -> tuple[FactPage[Line], int]:
    """Returns lines numbered above `after`; with `before`, the newest of those below it. And how many the job has."""
    with store.read() as session:
        (total,) = access.readable_job(session, job_id, caller, Job.log_lines)
        if before is None:
            return logs.after(session, job_id, line=after, limit=limit, where=where), total
        return logs.before(session, job_id, line=before, limit=limit, after=after, where=where), total


@contextmanager
def chunks(store: Snapshots, job_id: str, *, line: int, where: LogFilter, to: int) -> Generator[Generator[Lines]]:
    """Yields what yields the stored pieces of the log that have lines from `line` to `to`, in order, as it is read."""
    with store.read() as session, closing(logs.chunks_from(session, job_id, line, where, to=to)) as found:
        yield (Lines(chunk.first, chunk.time, chunk.text) for chunk in found)
