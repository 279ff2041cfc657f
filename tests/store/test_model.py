"""Compares any sequence of actions of users, workers and failures with a model: nothing is lost or doubled."""

from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
import pytest
from sqlalchemy import select

from store.attempts import lease as leases
from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.db.database import Database
from store.queue.announcing import Queue
from store.tables import Allocation, Attempt, Job, JobEvent
from tests import line, servers
from tests.databases import Databases
from tests.store.fixture import StoreFixture, a_service, checkpoint
from torchyard.contract.errors import Conflict, StaleClaim
from torchyard.contract.states import CRASH_LOOP_CAP, OUTCOMES, TRANSITIONS, EndReason, JobState, Reason

EXAMPLES = int(os.environ.get("TORCHYARD_MODEL_EXAMPLES", "3"))
DEVICES = ("slot-0", "slot-1", "slot-2")
OPEN = {JobState.STARTING, JobState.RUNNING}
ENDS = [reason for reason in EndReason if reason is not EndReason.CANCELLED]


@dataclass
class Model:
    """The expected state of a job."""

    priority: int
    preemptible: bool
    limit: int
    state: JobState = JobState.QUEUED
    attempt: int = 0
    restarts: int = 0
    attempts_without_checkpoint: int = 0
    start: int = 0
    """Step of the newest checkpoint at the start of the attempt."""
    newest: int = 0
    cancel: bool = False
    pause: bool = False
    preempted_for: str | None = None

    def end(self, reason: EndReason) -> None:
        """Updates the model at the end of an attempt."""
        outcome = OUTCOMES[reason]
        asked = reason in {EndReason.PAUSED, EndReason.PREEMPTED}
        self.attempts_without_checkpoint = (
            0 if self.newest > self.start else self.attempts_without_checkpoint + (not asked)
        )
        self.preempted_for = None
        self.state = outcome.state if outcome.state.terminal else self._retried(counted=outcome.counted)
        if outcome.counted and self.state in {JobState.QUEUED, JobState.PAUSED}:
            self.restarts += 1

    def _retried(self, *, counted: bool) -> JobState:
        if self.cancel:
            return JobState.CANCELLED
        if (counted and self.restarts >= self.limit) or self.attempts_without_checkpoint >= CRASH_LOOP_CAP:
            return JobState.FAILED
        return JobState.PAUSED if self.pause else JobState.QUEUED


@dataclass
class Held:
    """An open attempt."""

    claim: Claim
    worker: str
    device: str
    stored: int = 0


@dataclass
class Seen:
    """Values that may only rise."""

    versions: dict[str, int] = field(default_factory=dict[str, int])
    fences: dict[int, int] = field(default_factory=dict[int, int])


def machine(databases: Databases, redis_url: str) -> type[RuleBasedStateMachine]:
    """Builds the state machine for one kind of database."""

    class Store(RuleBasedStateMachine):
        submitted = Bundle("submitted")
        lost = Bundle("lost")

        def __init__(self) -> None:
            super().__init__()
            self._open = ExitStack()
            url = self._open.enter_context(databases.migrated())
            self.db = StoreFixture(self._open.enter_context(closing(Database(url))))
            self.queue = self._open.enter_context(closing(Queue(redis_url, service=a_service)))
            self.models: dict[str, Model] = {}
            self.held: dict[str, Held] = {}
            self.drained: set[str] = set()
            self.seen = Seen()

        def teardown(self) -> None:
            self._open.close()

        @initialize()
        def workers_come(self) -> None:
            self.workers = [self.db.worker("one"), self.db.worker("two")]

        @rule(
            target=submitted,
            priority=st.integers(-1, 1),
            preemptible=st.booleans(),
            limit=st.integers(0, 2),
        )
        def submit(self, priority: int, preemptible: bool, limit: int) -> str:
            job_id = self.db.submit(priority=priority, preemptible=preemptible, max_restarts=limit)
            self.models[job_id] = Model(priority, preemptible, limit)
            self.queue.announce(line.told(self.db.job(job_id)))
            return job_id

        @rule(job_id=submitted, number=st.integers(0, 1), device=st.sampled_from(DEVICES))
        def claim(self, job_id: str, number: int, device: str) -> None:
            worker, model = self.workers[number], self.models[job_id]
            taken = any((held.worker, held.device) == (worker, device) for held in self.held.values())
            claim = self.db.claim(job_id, worker, device)
            if model.state is not JobState.QUEUED or taken or worker in self.drained:
                assert claim is None
                return
            assert claim is not None
            model.state, model.attempt, model.start = JobState.STARTING, model.attempt + 1, model.newest
            assert claim.number == model.attempt
            self.held[job_id] = Held(claim, worker, device)

        @precondition(lambda self: bool(self.held))
        @rule(data=st.data())
        def run(self, data: st.DataObject) -> None:
            job_id, held = self._pick(data)
            if self.models[job_id].state is JobState.STARTING:
                self._run(held)
                self.models[job_id].state = JobState.RUNNING
            else:
                with pytest.raises(StaleClaim):
                    self._run(held)

        @precondition(lambda self: bool(self.held))
        @rule(data=st.data(), saves=st.booleans())
        def report(self, data: st.DataObject, saves: bool) -> None:
            job_id, held = self._pick(data)
            saved = [checkpoint(f"c{held.stored}", step=held.stored)] if saves else []
            self.db.record(held.claim, seq=held.stored, checkpoints=saved)
            with pytest.raises(StaleClaim):
                self.db.record(held.claim, seq=held.stored, checkpoints=saved)
            if saves:
                self.models[job_id].newest = held.stored
            held.stored += 1

        @precondition(lambda self: bool(self.held))
        @rule(target=lost, data=st.data(), reason=st.sampled_from(ENDS))
        def end(self, data: st.DataObject, reason: EndReason) -> Any:
            job_id, held = self._pick(data)
            if reason is EndReason.COMPLETED and self.models[job_id].state is JobState.STARTING:
                return multiple()
            self.models[job_id].end(reason)
            assert self.db.end(held.claim, reason) is self.models[job_id].state
            return self._closed(job_id)

        @precondition(lambda self: bool(self.held))
        @rule(target=lost, data=st.data(), late=st.booleans())
        def expire(self, data: st.DataObject, late: bool) -> Any:
            job_id, held = self._pick(data)
            if late:
                self.db.expire(held.claim)
            assert self.db.rescue(held.claim) is late
            if not late:
                return multiple()
            self.models[job_id].end(EndReason.WORKER_LOST)
            return self._closed(job_id)

        @rule(held=consumes(lost))
        def a_stale_owner_writes(self, held: Held) -> None:
            renewed = self.db.write(lambda session: leases.renew(session, held.worker, [held.claim.attempt_id]))
            assert renewed == set()
            for work in (
                lambda: self.db.record(held.claim, seq=held.stored),
                lambda: self.db.end(held.claim, EndReason.COMPLETED),
                lambda: self._run(held),
                lambda: self.db.write(lambda session: attempts.mark_prepared(session, held.claim, start_step=1)),
            ):
                with pytest.raises(StaleClaim):
                    work()
            assert not self.db.rescue(held.claim)

        @rule(number=st.integers(0, 1))
        def renew(self, number: int) -> None:
            mine = {held.claim.attempt_id for held in self.held.values() if held.worker == self.workers[number]}
            everything = [held.claim.attempt_id for held in self.held.values()]
            assert self.db.write(lambda session: leases.renew(session, self.workers[number], everything)) == mine

        @rule(job_id=submitted)
        def cancel(self, job_id: str) -> None:
            model = self.models[job_id]
            if model.state.terminal and model.state is not JobState.CANCELLED:
                with pytest.raises(Conflict):
                    self.db.cancel(job_id)
                return
            self.db.cancel(job_id)
            model.cancel = True
            if model.state not in OPEN:
                model.state = JobState.CANCELLED

        @rule(job_id=submitted)
        def pause(self, job_id: str) -> None:
            model = self.models[job_id]
            if model.state.terminal or model.cancel:
                with pytest.raises(Conflict):
                    self.db.pause(job_id)
                return
            self.db.pause(job_id)
            model.pause = True
            if model.state is JobState.QUEUED:
                model.state = JobState.PAUSED

        @rule(job_id=submitted)
        def resume(self, job_id: str) -> None:
            model = self.models[job_id]
            if model.state.terminal or model.cancel:
                with pytest.raises(Conflict):
                    self.db.resume(job_id)
                return
            self.db.resume(job_id)
            model.pause = False
            if model.state is JobState.PAUSED:
                model.state = JobState.QUEUED

        @rule(target=submitted, job_id=submitted)
        def retry(self, job_id: str) -> Any:
            model = self.models[job_id]
            if not model.state.terminal:
                with pytest.raises(Conflict):
                    self.db.retry(job_id)
                return multiple()
            new = self.db.retry(job_id)
            self.models[new] = Model(model.priority, model.preemptible, model.limit)
            return new

        @rule(victim=submitted, favoured=submitted)
        def preempt(self, victim: str, favoured: str) -> None:
            model, other = self.models[victim], self.models[favoured]
            allowed = (
                other.state is JobState.QUEUED
                and model.state in OPEN
                and model.preemptible
                and model.priority < other.priority
                and not (model.cancel or model.pause or model.preempted_for)
                and not any(job.preempted_for == favoured and job.state in OPEN for job in self.models.values())
            )
            assert self.db.preempt(victim, preemptor=favoured) is allowed
            if allowed:
                model.preempted_for = favoured

        @rule(number=st.integers(0, 1), drain=st.booleans())
        def drain(self, number: int, drain: bool) -> None:
            worker = self.workers[number]
            self.db.drain(worker, drain=drain)
            (self.drained.add if drain else self.drained.discard)(worker)

        @rule(wiped=st.booleans())
        def rebuild_the_queue(self, wiped: bool) -> None:
            if wiped:
                with servers.administered(redis_url) as redis:
                    redis.flushall()
            line.sweep(self.queue, self.db.database)
            waiting = sorted(
                (-model.priority, job_id) for job_id, model in self.models.items() if model.state is JobState.QUEUED
            )
            assert line.waiting(self.queue) == [job_id for _, job_id in waiting]

        @invariant()
        def the_rows_are_as_they_should_be(self) -> None:
            with self.db.database.read() as session:
                rows = {row.id: row for row in session.scalars(select(Job))}
                tried = session.scalars(select(Attempt).order_by(Attempt.id)).all()
                allocated = session.scalars(select(Allocation)).all()
                events = session.scalars(select(JobEvent).order_by(JobEvent.job_id, JobEvent.seq)).all()
            assert rows.keys() == self.models.keys(), "no job is lost"
            for job_id, model in self.models.items():
                self._check_job(rows[job_id], model, [row for row in tried if row.job_id == job_id])
                self._check_moves(
                    rows[job_id], [row.data for row in events if (row.job_id, row.type) == (job_id, "state")]
                )
            self._check_devices(tried, allocated)

        def _check_job(self, row: Job, model: Model, tried: list[Attempt]) -> None:
            assert (row.state, row.attempt, row.restarts, row.attempts_without_checkpoint) == (
                model.state,
                model.attempt,
                model.restarts,
                model.attempts_without_checkpoint,
            )
            assert (row.finished_at is not None) == model.state.terminal
            assert (row.cancel_requested_at is not None) == model.cancel
            assert (row.pause_requested_at is not None) == model.pause
            assert (row.preempt_requested_at is not None) == (model.preempted_for is not None)
            assert row.preempted_for == model.preempted_for
            if model.state is JobState.QUEUED:
                assert not (model.cancel or model.pause or model.preempted_for), "what waits is asked nothing"
            assert row.restarts <= model.limit
            assert row.version >= self.seen.versions.get(row.id, 0)
            self.seen.versions[row.id] = row.version
            assert [item.number for item in tried] == list(range(1, model.attempt + 1))
            running = [item.number for item in tried if item.ended_at is None]
            assert running == ([model.attempt] if model.state in OPEN else []), "one owner at a time"
            for item in tried:
                assert item.relay_seq >= self.seen.fences.get(item.id, 0)
                self.seen.fences[item.id] = item.relay_seq

        def _check_moves(self, row: Job, moves: list[dict[str, Any]]) -> None:
            assert [move["from"] for move in moves] == [None, *(move["to"] for move in moves[:-1])]
            assert moves[-1]["to"] == row.state
            assert all(move["to"] in TRANSITIONS[JobState(move["from"])] for move in moves[1:])
            ends = [move for move in moves if JobState(move["to"]).terminal]
            assert len(ends) == JobState(row.state).terminal, "one terminal event"

        def _check_devices(self, tried: Any, allocated: Any) -> None:
            open_ids = {item.id for item in tried if item.ended_at is None}
            held = [row for row in allocated if row.released_at is None]
            assert {row.attempt_id for row in held} == open_ids
            assert len({(row.worker_id, row.device) for row in held}) == len(held), "no device twice"

        def _run(self, held: Held) -> None:
            reason = Reason("running", "runs")
            self.db.write(lambda session: attempts.mark_running(session, held.claim, reason=reason))

        def _pick(self, data: st.DataObject) -> tuple[str, Held]:
            job_id = data.draw(st.sampled_from(sorted(self.held)))
            return job_id, self.held[job_id]

        def _closed(self, job_id: str) -> Held:
            held = self.held.pop(job_id)
            with suppress(KeyError):
                self.queue.announce(line.left(job_id))
            return held

    return Store


def test_any_sequence_of_operations_matches_the_model(databases: Databases, tmp_path: Path) -> None:
    with servers.redis_server(tmp_path) as redis_url:
        run_state_machine_as_test(
            machine(databases, redis_url),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                deadline=None,
                derandomize=EXAMPLES <= 12,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
            ),
        )
