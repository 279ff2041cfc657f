"""The line in Redis, for tests: what it has, whether or not it may be read, and what commits would say to it."""

from store.announcement import Announcement
from store.db.database import Database
from store.queue.announcing import Queue
from store.queue.line.entries import entry_of
from store.queue.line.sweep import Sweep
from store.queue.line_facts import Bucket, Left, LineEntry
from store.tables import Job


def waiting(queue: Queue) -> list[str]:
    """Returns the ids that Redis has, by priority, time of submission and id."""
    found = entries(queue)
    assert not any(entry.startswith("!") for entry in found.values()), "the sets have what the entries say"
    return sorted(found, key=lambda job_id: _order(job_id, found[job_id]))


def entries(queue: Queue) -> dict[str, str]:
    """Returns the entries that Redis has, by id."""
    found: set[str] = set()
    cursor = -1
    while cursor:
        cursor, ids = queue.upkeep.scan(max(cursor, 0), count=1000)
        found.update(ids)
    ids = sorted(found)
    # A job that was removed since the scan has no entry.
    return {job_id: entry for job_id, entry in zip(ids, queue.upkeep.entries(ids), strict=True) if entry}


def queued(job_id: str, priority: int = 0, *, owner: str = "ada", submitted: int = 1) -> Announcement:
    """Returns what is said to Redis when a job was queued."""
    entry = LineEntry(Bucket(owner, "auto", priority), submitted, "a-shape", changed=0)
    return Announcement(line={job_id: entry})


def told(*jobs: Job) -> Announcement:
    """Returns what is said to Redis when jobs were queued, by their rows."""
    return Announcement(line={job.id: entry_of(job) for job in jobs})


def left(job_id: str) -> Announcement:
    """Returns what is said to Redis when a job was taken."""
    return Announcement(line={job_id: Left()})


def sweep(queue: Queue, database: Database) -> bool:
    """Makes the line equal to the rows. Returns whether it differed."""
    return Sweep(queue.upkeep, database).run()


def clear(queue: Queue) -> None:
    """Removes all jobs from Redis."""
    queue.upkeep.change([(job_id, "", "") for job_id in entries(queue)])


def _order(job_id: str, entry: str) -> tuple[int, int, str]:
    _, submitted, _, bucket = entry.split("|", 3)
    return -int(bucket.split(":")[0]), int(submitted), job_id
