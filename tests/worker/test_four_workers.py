"""Four workers on one database, whose views are old when they act, and which may be lost at any time."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
import os
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.db.database import Database
from store.jobs import edits
from store.queue.announcing import Queue
from tests.databases import Databases, on_both
from tests.store.fixture import StoreFixture, a_service, run_together
from tests.worker.schedulers import SchedulerFixture, SchedulersFixture, slot
from tests.worker.several import SLOTS, Several
from torchyard.contract.errors import Conflict
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.states import EndReason

NAMES = ("one", "two", "three", "four")
EXAMPLES = int(os.environ.get("TORCHYARD_MODEL_EXAMPLES", "2"))
Event = Literal["pass", "all pass", "end", "cancel", "pause", "reprice", "lose", "return", "submit"]
EVENTS: Sequence[Event] = ("pass", "pass", "all pass", "end", "end", "cancel", "pause", "reprice", "lose", "return")


@dataclass(frozen=True)
class Submission:
    count: int
    priority: int
    owner: str
    preemptible: bool
    time_limit: str


@dataclass(frozen=True)
class Turn:
    event: Event
    which: int
    """Of the workers or jobs that the event may concern."""
    submitted: Sequence[Submission]
    meanwhile: Sequence[tuple[Event, int]]
    """What happens after a worker that passes has read the rows, before each of its claims."""


SUBMISSIONS = st.builds(
    Submission,
    count=st.integers(1, SLOTS),
    priority=st.sampled_from([0, 0, 0, 3]),
    owner=st.sampled_from(["ada", "bob"]),
    preemptible=st.booleans(),
    time_limit=st.sampled_from(["30m", "24h"]),
)
TURNS = st.lists(
    st.builds(
        Turn,
        event=st.sampled_from(EVENTS),
        which=st.integers(0, 7),
        submitted=st.lists(SUBMISSIONS, max_size=4),
        meanwhile=st.lists(st.tuples(st.sampled_from((*EVENTS, "submit")), st.integers(0, 7)), max_size=2),
    ),
    min_size=2,
    max_size=12,
)


class FourWorkers:
    def __init__(self, schedulers: SchedulersFixture) -> None:
        self._store = schedulers.store
        slots = [slot(index) for index in range(SLOTS)]
        self._schedulers = [schedulers.scheduler(name, *slots) for name in NAMES]
        self.all = Several(self._store, [scheduler.id for scheduler in self._schedulers])
        self._events: dict[Event, Callable[[int], None]] = {
            "pass": lambda which: self._pass(which, ()),
            "all pass": lambda _: self._all_pass(),
            "end": self._end,
            "cancel": lambda which: self._ask(which, self._store.cancel),
            "pause": lambda which: self._ask(which, self._store.pause),
            "reprice": lambda which: self._ask(which, lambda job_id: self._reprice(job_id, which)),
            "lose": self._lose,
            "return": self._return,
            "submit": lambda which: self._submit(Submission(1 + which % SLOTS, which % 4, "ada", which > 3, "24h")),
        }

    def take(self, turn: Turn) -> None:
        for submission in turn.submitted:
            self._submit(submission)
        if turn.event == "pass":
            self._pass(turn.which, turn.meanwhile)
        else:
            self._events[turn.event](turn.which)
        self.all.check()

    def finish(self) -> None:
        """Lets all jobs end while nothing more happens to the workers."""
        while waiting := self.all.waiting:
            for claim in self.all.open_claims():
                self._store.complete(claim)
            self.all.sweep()
            for _ in NAMES:
                self._all_pass()
            self.all.check()
            self.all.check_kept()
            for scheduler in self._alive():
                scheduler.run_pass()
                self.all.check_settled(scheduler.id)
            assert len(self.all.waiting) < len(waiting), "nothing waits for a worker that is lost"

    def _alive(self) -> list[SchedulerFixture]:
        return [scheduler for scheduler in self._schedulers if scheduler.id not in self.all.lost]

    def _submit(self, job: Submission) -> None:
        self._store.submit(
            owner=job.owner,
            priority=job.priority,
            preemptible=job.preemptible,
            time_limit=job.time_limit,
            resources={"devices_per_node": job.count},
        )

    def _pass(self, which: int, meanwhile: Sequence[tuple[Event, int]]) -> None:
        """Has a worker pass over the line. Each of `meanwhile` happens once, before its claims."""
        scheduler = self._alive()[which % len(self._alive())]
        left = [*meanwhile]

        def interfere() -> None:
            if left:
                event, of = left.pop()
                scheduler.before_claim = lambda: None  # others may pass meanwhile, and so may this one
                self._events[event](of)
                self.all.check()
                scheduler.before_claim = interfere

        scheduler.before_claim = interfere
        scheduler.run_pass()
        scheduler.before_claim = lambda: None

    def _all_pass(self) -> None:
        done = run_together(*(scheduler.run_pass for scheduler in self._alive()))
        assert done == [None] * len(done)

    def _end(self, which: int) -> None:
        if claims := self.all.open_claims():
            claim = claims[which % len(claims)]
            if self._store.job(claim.job_id).preempt_requested_at is not None:
                self._store.end(claim, EndReason.PREEMPTED)
            else:
                self._store.complete(claim)

    def _ask(self, which: int, ask: Callable[[str], object]) -> None:
        """Asks for something of a holder, or of a job that waits if there is none."""
        found = self.all.holders or [job.id for job in self.all.waiting]
        if found:
            with suppress(Conflict):
                ask(found[which % len(found)])

    def _reprice(self, job_id: str, priority: int) -> None:
        patch = parse_patch({"priority": priority - 4})
        self._store.write(lambda session: edits.change(session, job_id, patch))

    def _lose(self, which: int) -> None:
        if len(self._alive()) > 1:
            self.all.lose(self._alive()[which % len(self._alive())].id)

    def _return(self, _: int) -> None:
        for scheduler in self._schedulers:
            scheduler.report_devices(*scheduler.devices)
        self.all.lost.clear()


@on_both
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(turns=TURNS)
def test_no_claim_breaks_a_reservation_and_nothing_waits_for_a_dead_worker(
    databases: Databases, turns: Sequence[Turn]
) -> None:
    with databases.migrated() as url, closing(Database(url)) as database:
        queue = Queue("unix:///nowhere/redis.sock", service=a_service)
        four = FourWorkers(SchedulersFixture(StoreFixture(database), queue))
        for turn in turns:
            four.take(turn)
        four.finish()
