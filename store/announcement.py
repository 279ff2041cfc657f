"""What a transaction has changed. Row functions record it in the session; the store announces it after the commit."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from store.queue.line_facts import Credits, Left, LineEntry, Standing
from torchyard.contract.telemetry.views import LiveLine

QUEUE, WORKERS = "topic:queue", "topic:workers"
"""The names under which changes of the queue, and of workers and their devices, are announced."""

_KEY = "torchyard.announcement"
_AT_SOME_TIME = Left()
_ROW, _LIVE, _ACCESS = "row:", "live:", "access:"


def row(job_id: str) -> str:
    """Returns the name under which is announced that a job is new in lists, moved, edited or deleted."""
    return f"{_ROW}{job_id}"


def job_of_row(announced: str) -> str | None:
    """Returns the job whose row was announced, None if something else was."""
    return announced.removeprefix(_ROW) if announced.startswith(_ROW) else None


def live(line: LiveLine) -> str:
    """Returns the announcement of an unfinished line of output: the whole line, as nothing stores it."""
    return f"{_LIVE}{line.model_dump_json()}"


def live_line(announced: str) -> LiveLine | None:
    """Returns the line that was announced, None if something else was."""
    return LiveLine.model_validate_json(announced.removeprefix(_LIVE)) if announced.startswith(_LIVE) else None


def channel(name: str) -> str:
    """Returns the name under which changes of access are announced: of a user, or to a job."""
    return f"{_ACCESS}{name}"


def is_channel(announced: str) -> bool:
    """Returns whether a change of access was announced."""
    return announced.startswith(_ACCESS)


@dataclass
class Announcement:
    """What changed, where jobs stand in the line, and whether the workers have something to do."""

    changed: set[str] = field(default_factory=set[str])
    """Ids of jobs, and names of other things."""
    line: dict[str, LineEntry | Left] = field(default_factory=dict[str, LineEntry | Left])
    """By job id."""
    wakes_workers: bool = False
    """Whether a worker may have a request to act on."""
    wakes_controller: bool = False
    """Whether a controller may have something to do: a job has ended or was paused, or something is due."""
    moves_line: bool = False
    """Whether a job may start that could not before: it was queued, or a device was released."""
    newcomers: list[Standing] = field(default_factory=list[Standing])
    """Jobs whose positions in the queue are asked for when they are announced."""
    credits: Credits | None = None
    """By which the line is ordered, where they are known when the newcomers are announced."""
    positions: Mapping[str, int] | None = None
    """The positions of the newcomers by id, once they were announced; None if Redis did not say."""

    def __bool__(self) -> bool:
        """Returns whether there is anything to announce."""
        return self.wakes_workers or self.wakes_controller or self.moves_line or bool(self.changed or self.line)

    def mark_changed(self, *names: str) -> None:
        """Records what has changed for clients: jobs by their ids, other things by their names."""
        self.changed.update(names)

    def enqueue(self, job_id: str, entry: LineEntry) -> None:
        """Records that the job is queued and a worker may claim it."""
        self.mark_changed(job_id, row(job_id), QUEUE)
        self.line[job_id] = entry
        self.moves_line = True

    def dequeue(self, job_id: str, left: Left = _AT_SOME_TIME) -> None:
        """Records that the job is not queued."""
        self.mark_changed(job_id, row(job_id), QUEUE, WORKERS)
        self.line[job_id] = left

    def add(self, other: "Announcement") -> None:
        """Records all that the other one has, which is newer."""
        self.changed |= other.changed
        self.line |= other.line
        self.wakes_workers |= other.wakes_workers
        self.wakes_controller |= other.wakes_controller
        self.moves_line |= other.moves_line
        self.newcomers += other.newcomers

    def wake_workers(self) -> None:
        """Records that a worker may have a request to act on."""
        self.wakes_workers = True

    def wake_controller(self) -> None:
        """Records that a controller may have something to do."""
        self.wakes_controller = True

    def move_line(self) -> None:
        """Records that a job may start that could not before, as a device was released."""
        self.moves_line = True


def announcement_of(session: Session) -> Announcement:
    """Returns the announcement of the session's transaction; `Store.write` sends it after the commit."""
    return session.info.setdefault(_KEY, Announcement())


@contextmanager
def apart(session: Session) -> Generator[None]:
    """Adds what the block announces to the session's announcement, unless the block raises."""
    whole = announcement_of(session)
    own = session.info[_KEY] = Announcement()
    try:
        yield
        whole.add(own)
    finally:
        session.info[_KEY] = whole
