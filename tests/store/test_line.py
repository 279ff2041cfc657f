"""What Redis answers of the line is what SQL answers, whatever was done to the jobs, and what its order is."""

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
import pytest
from sqlalchemy import Update, select, update

from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.db.database import Database
from store.jobs import requests
from store.jobs import submit as submission
from store.jobs.facts import QueueCursor
from store.jobs.submission import Submission
from store.queue import placement
from store.queue.announcing import Queue
from store.queue.credits import CreditCache
from store.queue.line import order
from store.queue.line.entries import standing_of
from store.queue.line.line import Line, line_of
from store.queue.line_facts import Credits, OwnerKind, Standing
from store.tables import Job
from store.team.callers import SERVICE, Caller
from store.worker.verbs import WorkerStore
from tests import servers
from tests.databases import Databases, SQLiteDatabases
from tests.sessions import write
from tests.store.fixture import StoreFixture, placement_on, service_of, store_on
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role

EXAMPLES = int(os.environ.get("TORCHYARD_MODEL_EXAMPLES", "3"))
OWNERS, KINDS = ("ada", "bob", "eve:|é"), ("cuda", "cpu")
HOUR = 3_600_000_000

credits_of_owners = st.builds(
    Credits,
    by_owner=st.dictionaries(st.tuples(st.sampled_from(OWNERS), st.sampled_from(KINDS)), st.integers(0, 72 * HOUR)),
    default=st.sampled_from([0, 72 * HOUR]),
    auto=st.sampled_from(KINDS),
    over_quota=st.frozensets(st.tuples(st.sampled_from(OWNERS), st.sampled_from(KINDS)), max_size=2),
)


def expected(jobs: Sequence[Standing], credits: Credits) -> list[str]:
    """Returns the ids in the order of the line, as the rules say it."""

    def key(job: Standing) -> tuple[bool, int, int, str]:
        owned: OwnerKind = (job.bucket.owner, credits.kind_of(job.bucket.request))
        credit = credits.by_owner.get(owned, credits.default)
        return owned in credits.over_quota, -job.bucket.priority, job.member.submitted - credit, job.member.id

    return [job.member.id for job in sorted(jobs, key=key)]


def pages(line: Line, credits: Credits, *, limit: int) -> list[str]:
    """Returns the ids of all pages."""
    found: list[str] = []
    last: QueueCursor | None = None
    while page := line.page(credits, after=last, limit=limit):
        found += [job.member.id for job in page]
        last = order.cursor_of(page[-1], credits)
    return found


def machine(databases: Databases, redis_url: str) -> type[RuleBasedStateMachine]:
    class Queueing(RuleBasedStateMachine):
        jobs = Bundle("jobs")

        def __init__(self) -> None:
            super().__init__()
            self._open = ExitStack()
            self.claims: list[Claim] = []

        @initialize()
        def set_up(self) -> None:
            database = self._open.enter_context(closing(Database(self._open.enter_context(databases.migrated()))))
            service = service_of(database)
            service()
            queue = self._open.enter_context(closing(Queue(redis_url, service=service)))
            self.db, self.store = StoreFixture(database), store_on(database, queue=queue)
            self.worker = self.db.worker()
            assert self.store.sweep_line(), "Redis has no line yet"

        def teardown(self) -> None:
            self._open.close()

        @rule(
            target=jobs,
            owner=st.sampled_from(OWNERS),
            priority=st.sampled_from([-100, 0, 0, 0, 7]),
            device=st.sampled_from(["auto", "cuda", "cpu"]),
            count=st.integers(1, 2),
        )
        def submit(self, owner: str, priority: int, device: str, count: int) -> str:
            spec = self.db.spec(priority=priority, resources={"device": device, "devices_per_node": count})
            caller = Caller(owner, Role.MEMBER)
            made = submission.submit_alone(self.store, Submission(spec, caller, "private")).job
            assert made.in_line == self.db.place(made.id)
            return made.id

        @rule(job_id=jobs)
        def claim(self, job_id: str) -> None:
            device = f"slot-{len(self.claims)}"
            claim = write(self.store, claims.claim, job_id, placement_on(self.worker, device))
            if claim is not None:
                self.claims.append(claim)

        @rule(data=st.data(), reason=st.sampled_from([EndReason.PREEMPTED, EndReason.USER_ERROR, EndReason.PAUSED]))
        def end(self, data: st.DataObject, reason: EndReason) -> None:
            if self.claims:
                claim = self.claims.pop(data.draw(st.integers(0, len(self.claims) - 1)))
                WorkerStore(self.store, self.worker).end(claim, ExitReport(reason=reason), requested_stops={reason})

        @rule(job_id=jobs, what=st.sampled_from(["pause", "resume", "cancel", "delete"]))
        def ask(self, job_id: str, what: Any) -> None:
            with suppress(Conflict, NotFound):
                write(self.store, requests.act, what, job_id, caller=SERVICE)

        @rule(job_id=jobs, priority=st.sampled_from([-100, 0, 7]))
        def change_priority(self, job_id: str, priority: int) -> None:
            with suppress(Conflict, NotFound):
                changed = write(
                    self.store, requests.change, job_id, parse_patch({"priority": priority}), caller=SERVICE
                )
                assert changed.in_line == self.db.place(job_id)

        @rule()
        def group_those_held_back(self) -> None:
            self.db.write(lambda session: session.execute(_let_go()))
            placement.group_waiting_jobs(self.store)

        @rule()
        def sweep(self) -> None:
            self.store.sweep_line()
            assert not self.store.sweep_line(), "nothing happened since"

        @rule(credits=credits_of_owners, limit=st.integers(1, 5))
        def read(self, credits: Credits, limit: int) -> None:
            self.compare(credits, limit)

        @invariant()
        def redis_answers_as_sql_does(self) -> None:
            self.compare(Credits(), 3)

        def compare(self, credits: Credits, limit: int) -> None:
            with self.db.database.read() as session:
                queued = session.scalars(select(Job).where(Job.state == JobState.QUEUED)).all()
                standings = [standing_of(job) for job in queued]
                sql = _answers(line_of(session), standings, credits, limit)
            assert sql["pages"] == expected(standings, credits)
            assert sql["positions"] == {job_id: place for place, job_id in enumerate(sql["pages"], start=1)}
            with self.store.read() as session:
                line = line_of(session)
                assert _answers(line, standings, credits, limit) == sql
                assert line.asks_redis

    return Queueing


def test_redis_answers_as_sql_does_after_any_sequence_of_operations(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CreditCache, "lasting_s", 0.0)  # two stores ask for the credits one after the other
    with servers.redis_server(tmp_path) as redis_url:
        run_state_machine_as_test(
            machine(databases, redis_url),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=30,
                deadline=None,
                derandomize=EXAMPLES <= 12,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
            ),
        )


def _answers(line: Line, jobs: Sequence[Standing], credits: Credits, limit: int) -> dict[str, Any]:
    heads = line.heads()
    found: dict[str, Any] = {"heads": dict(heads), "buckets": dict(line.buckets())}
    for group, head in heads.items():
        found[f"behind {group}"] = list(line.successors(group, head, limit=limit))
        found[f"behind the middle of {group}"] = list(line.successors(group, head._replace(id="job_8"), limit=limit))
    return {**found, "pages": pages(line, credits, limit=limit), "positions": line.positions(credits, jobs)}


def _let_go() -> Update:
    return update(Job).where(Job.not_before.is_not(None)).values(not_before=1)


def test_positions_of_many_jobs_cost_sql_one_look_at_the_line(sqlite: SQLiteDatabases) -> None:
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    with sqlite.migrated() as url, closing(Database(url)) as database:
        db = StoreFixture(database)
        ids = sorted(db.submit_many(2000))
        used: list[int] = []
        for asked in (ids[-1:], ids[-1000:]):
            with database.read() as session:
                jobs = [standing_of(job) for job in session.scalars(select(Job).where(Job.id.in_(asked)))]
                driver = session.connection().connection.driver_connection
                assert driver is not None
                driver.set_progress_handler(count, 1)
                steps[0] = 0
                found = line_of(session).positions(Credits(), jobs)
                used.append(steps[0])
                driver.set_progress_handler(None, 1)
            assert found == {job_id: place for place, job_id in enumerate(ids, start=1) if job_id in asked}
        assert used[1] < 10 * used[0]
