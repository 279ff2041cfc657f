"""What holds of all passes of one worker over a line: in which order jobs start, and whom they may pass."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from store.db.database import Database
from store.queue.announcing import Queue
from tests.databases import Databases
from tests.store.fixture import StoreFixture, a_service
from tests.worker.schedulers import SchedulersFixture, slot
from torchyard.contract.states import EndReason


@dataclass(frozen=True)
class Submission:
    count: int
    priority: int
    owner: str
    held_back: bool


@dataclass(frozen=True)
class Turn:
    submitted: list[Submission]
    release: bool
    """Whether the held back jobs may start from now on."""
    ends: int
    """How many running jobs end after the pass."""


SUBMISSIONS = st.builds(
    Submission,
    count=st.integers(1, 3),
    priority=st.integers(-1, 1),
    owner=st.sampled_from(["ada", "bob"]),
    held_back=st.booleans(),
)
TURNS = st.lists(
    st.builds(Turn, submitted=st.lists(SUBMISSIONS, max_size=6), release=st.booleans(), ends=st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


class Box:
    """A worker with some slots, and what waits and runs there."""

    def __init__(self, schedulers: SchedulersFixture, slots: int) -> None:
        self._store = schedulers.store
        self._slots = slots
        self._scheduler = schedulers.scheduler("box", *(slot(index) for index in range(slots)))
        self.waiting: dict[str, Submission] = {}
        self.running: dict[str, Submission] = {}

    @property
    def able(self) -> Mapping[str, Submission]:
        """The waiting jobs that the worker could run."""
        return {job_id: job for job_id, job in self.waiting.items() if not job.held_back and job.count <= self._slots}

    def submit(self, job: Submission) -> None:
        resources = {"devices_per_node": job.count}
        job_id = self._store.submit(owner=job.owner, priority=job.priority, resources=resources, max_restarts=0)
        self.waiting[job_id] = job
        if job.held_back:
            self._store.hold_back(job_id, seconds=3600)

    def release(self) -> None:
        for job_id, job in self.waiting.items():
            if job.held_back:
                self._store.hold_back(job_id, seconds=-1)
                self.waiting[job_id] = replace(job, held_back=False)

    def end(self, count: int) -> None:
        for job_id in [*self.running][:count]:
            self._store.end(self._scheduler.claims[job_id], EndReason.USER_ERROR)
            del self.running[job_id]

    def run_pass(self) -> None:
        """Makes a pass, and asserts what holds then."""
        before, taken = self._holder(), len(self._scheduler.taken)
        self._scheduler.run_pass()
        started = self._scheduler.taken[taken:]
        self.running |= {job_id: self.waiting.pop(job_id) for job_id in started}
        free = self._slots - sum(job.count for job in self.running.values())
        assert free >= 0
        holder = self._holder()
        assert (holder is not None) == bool(self.able), "kept for one as long as any waits"
        if holder is not None:
            assert self.able[holder].count > free, "it would have started"
            for job in self.able.values():
                assert job.count > free or job.priority <= self.able[holder].priority
        for job_id in started:
            if job_id != before:
                assert not [other for other in self.able if self._is_before(other, job_id)]

    def _holder(self) -> str | None:
        """Returns for which job the slots are kept."""
        kept = self._store.kept().get(self._scheduler.id)
        return None if kept is None else kept[0]

    def _is_before(self, one: str, started: str) -> bool:
        """Returns whether `one`, which waits, is before a job that asked for no less and started."""
        waits, runs = self.waiting[one], self.running[started]
        if waits.count > runs.count or waits.priority < runs.priority:
            return False
        return waits.priority > runs.priority or (waits.owner == runs.owner and one < started)


@settings(max_examples=int(os.environ.get("TORCHYARD_MODEL_EXAMPLES", "2")))
@given(turns=TURNS, slots=st.integers(1, 4))
def test_jobs_start_in_their_order_and_a_place_is_kept_for_the_first_that_does_not_fit(
    databases: Databases, turns: list[Turn], slots: int
) -> None:
    with databases.migrated() as url, closing(Database(url)) as database:
        queue = Queue("unix:///nowhere/redis.sock", service=a_service)
        box = Box(SchedulersFixture(StoreFixture(database), queue), slots)
        for turn in turns:
            for submission in turn.submitted:
                box.submit(submission)
            if turn.release:
                box.release()
            box.run_pass()
            box.end(turn.ends)
        box.release()
        for _ in range(len(box.waiting) + len(box.running)):
            box.end(1)
            box.run_pass()
        assert not box.able, "all have run"
