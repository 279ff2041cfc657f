"""What Slurm says of all jobs of this service, asked again and again by one thread."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
import logging
import re
import threading
import time

from worker.engines.slurm.commands import NoAnswer

_MOST_LINE = 4096
_SHOWN_NODES = 200
_LINE = re.compile(r"([0-9_+\[\]%,-]{1,64})\|([A-Z_]{1,40})\|([^|]*)\|([^|]*)\|([^|]*)\|([a-z0-9-]{1,120})")
_QUEUED = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_LIVE = frozenset(
    {
        *("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"),
        *("REQUEUED", "POWER_UP_NODE"),
    }
)
_ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE", "BOOT_FAIL"),
        *("OUT_OF_MEMORY", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    }
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One job, as a line of squeue shows it."""

    id: str
    name: str
    state: str
    """Slurm's own word."""
    reason: str
    expected_start: int | None
    """In microseconds since the epoch."""
    nodes: str
    """In Slurm's own words. Empty: it has had none."""

    @property
    def queued(self) -> bool:
        return self.state in _QUEUED

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def known(self) -> bool:
        """Whether its state is a word that we know."""
        return self.queued or self.ended or self.state in _LIVE


@dataclass(frozen=True)
class Listing:
    """One complete answer."""

    begun_at: float
    """When it was asked for, on the monotonic clock: what happened before is in it."""
    jobs: Mapping[str, Job]
    """By name. Of two jobs with one name, the one that may run."""


def parse(text: str) -> dict[str, Job]:
    """Returns the jobs by name. Skips lines of another form: other jobs of this user may have any name."""
    jobs: dict[str, Job] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip()) if len(line) <= _MOST_LINE else None
        if match is None:
            continue
        job_id, state, reason, start, nodes, name = match.groups()
        expected = int(start) * 1_000_000 if re.fullmatch("[0-9]{1,11}", start) else None
        job = Job(job_id, name, state, reason[:_SHOWN_NODES], expected, nodes[:_SHOWN_NODES])
        before = jobs.get(name)
        if before is None or _rank(job) > _rank(before):
            jobs[name] = job
    return jobs


def _rank(job: Job) -> int:
    return 0 if job.ended else 1 if job.queued else 2


class Listings:
    """Asks `ask` every `every_s` seconds, in a thread that starts with the first use.

    A tracked name is *absent* once two complete listings, at least `apart_s` seconds apart, and all between them lack
    it: an answer may be empty for once, and a job that was accepted may be lost.
    """

    def __init__(self, ask: Callable[[], str], *, every_s: float = 10.0, apart_s: float = 60.0) -> None:
        self._ask = ask
        self._every_s = every_s
        self._apart_s = apart_s
        self._changed = threading.Condition()
        self._newest: Listing | None = None
        self._missing_since: dict[str, float | None] = {}
        """By tracked name, when the first of the listings began that lack it, up to the newest."""
        self._wanted_at = 0.0
        self._failed: tuple[float, str] = (0.0, "")
        """When the newest failure began, and why."""
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def newest(self) -> Listing | None:
        return self._newest

    @property
    def problem(self) -> str | None:
        """Why the newest answer is missing, or None."""
        with self._changed:
            newest = self._newest.begun_at if self._newest is not None else 0.0
            return self._failed[1] if self._failed[0] > newest else None

    def track(self, name: str) -> None:
        """Begins to count the listings that lack the name, from now on."""
        with self._changed:
            self._missing_since[name] = None
        self._start()

    def forget(self, names: Iterable[str]) -> None:
        with self._changed:
            for name in names:
                self._missing_since.pop(name, None)

    def job(self, name: str) -> Job | None:
        newest = self._newest
        return newest.jobs.get(name) if newest is not None else None

    def absent(self, name: str) -> bool:
        """Returns whether the name is absent."""
        with self._changed:
            since, newest = self._missing_since.get(name), self._newest
            return since is not None and newest is not None and newest.begun_at - since >= self._apart_s

    def refresh(self, *, wait_s: float) -> Listing | None:
        """Returns a complete listing that begins after this call. None if there is none after `wait_s` seconds.

        With `wait_s` 0 it is only asked for.
        """
        self._start()
        asked_at = time.monotonic()
        with self._changed:
            self._wanted_at = asked_at
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered_since(asked_at), timeout=wait_s)
            newest = self._newest
            return newest if newest is not None and newest.begun_at >= asked_at else None

    def close(self) -> None:
        """Has the thread end. What it knows stays."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _answered_since(self, moment: float) -> bool:
        newest = self._newest
        return (newest is not None and newest.begun_at >= moment) or self._failed[0] >= moment

    def _start(self) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="listings of Slurm", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            begun_at = time.monotonic()
            self._take(begun_at)
            with self._changed:
                self._changed.wait_for(
                    lambda begun_at=begun_at: self._closed or self._wanted_at > begun_at, timeout=self._every_s
                )

    def _take(self, begun_at: float) -> None:
        try:
            listing = Listing(begun_at, parse(self._ask()))
        except Exception as error:  # the thread goes on whatever happens
            if self.problem is None:
                unexpected = None if isinstance(error, NoAnswer | OSError) else error
                logger.warning("Slurm does not list its jobs: %s", error, exc_info=unexpected)
            with self._changed:
                self._failed = (begun_at, str(error))
                self._changed.notify_all()
            return
        with self._changed:
            self._newest = listing
            for name, since in self._missing_since.items():
                missing = name not in listing.jobs
                self._missing_since[name] = (begun_at if since is None else since) if missing else None
            self._changed.notify_all()
