"""The kept bytes of owners are those of the rows, whatever happened to them."""

from collections.abc import Callable
import contextlib
from itertools import count
import random
from typing import Any

import pytest
from sqlalchemy import ColumnElement, func, select

from store import housekeeping as cleanup
from store.attempts import keeping
from store.attempts import lease as leases
from store.db.database import Database
from store.db.documents import bytes_of
from store.jobs import deletion, edits, requests
from store.output.facts import MetricPoint, NewEvent, NewLines, TrimLimits
from store.sweeps import requests as sweep_requests
from store.sweeps import submit, sweeps, trials
from store.sweeps.facts import NewSweep
from store.tables import (
    Artifact,
    Attempt,
    AuditEntry,
    Checkpoint,
    Job,
    JobEvent,
    Preferences,
    StoredCount,
    Sweep,
    SweepTrial,
)
from store.team import quotas, stored_counts, tokens, users
from store.team.callers import SERVICE, Caller
from store.team.limits import find_limits_of
from store.team.stored_counts import FREE_WRITTEN_BYTES, Stored
from tests.databases import quick_on_sqlite
from tests.sessions import write
from tests.store.fixture import StoreFixture, checkpoint, recorded_statements, run_together, store_on
from torchyard.contract.errors import Conflict, QuotaExceeded
from torchyard.contract.jobs.requests import JobAction, JobPatch
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.sweeps.spec import SweepSpec
from torchyard.contract.team.roles import Resource, Role

MOST_ROWS = 8
ROW_BYTES = 256
"""That of the migration."""
ADA, ADMIN = Caller("ada", Role.MEMBER), Caller("root", Role.ADMIN)
JOB = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}}


class History:
    """Jobs and sweeps of two users to which random things happen."""

    def __init__(self, db: StoreFixture, seed: int) -> None:
        self.db = db
        self._random = random.Random(seed)
        self._worker = db.worker()
        self._numbers = count()
        self._seqs: dict[str, int] = {}

    def step(self) -> None:
        acts: list[Callable[[], None]] = [self._submit, self._start, self._record, self._record, self._end]
        acts += [self._note, self._trim, self._delete, self._sweep, self._remove_sweep, self._prefer, self._add_up]
        acts += [self._ask, self._ask]
        self._random.choice(acts)()

    def _submit(self) -> None:
        owner = self._random.choice(["ada", "eve"])
        self.db.submit_many(
            self._random.randint(1, 3), owner=owner, labels={"text": "\u00e4" * self._random.randint(0, 9)}
        )

    def _start(self) -> None:
        for job_id in self._some(JobState.QUEUED):
            self.db.running(job_id, self._worker, f"slot-{next(self._numbers)}")

    def _record(self) -> None:
        for claim in self.db.read(lambda session: leases.list_open(session, self._worker))[:2]:
            seq = self._seqs.get(claim.job_id, 0)
            number = next(self._numbers)
            said = NewEvent("message", {"level": "info", "text": f"text {number}"}, 1, limited=True)
            made = checkpoint(f"step-{number}", step=number + 1)
            points = [MetricPoint("loss", number + 1, 0.0, 1)]
            lines = [NewLines(0, "stdout", [f"line {number}"])]
            self.db.record(claim, seq=seq, points=points, lines=lines, events=[said], checkpoints=[made])
            self._seqs[claim.job_id] = seq + 1

    def _end(self) -> None:
        for claim in self.db.read(lambda session: leases.list_open(session, self._worker))[:1]:
            self.db.end(claim, EndReason.COMPLETED)

    def _note(self) -> None:
        for job_id in self._some(*JobState):
            patch = JobPatch(
                notes="\u00e4" * self._random.randint(0, 50), labels={"a": "b" * self._random.randint(0, 50)}
            )
            self.db.write(lambda session, job_id=job_id, patch=patch: edits.change(session, job_id, patch))

    def _ask(self) -> None:
        action: JobAction = self._random.choice(["pause", "resume", "cancel", "archive", "label"])
        for job_id in self._some(*JobState):
            with contextlib.suppress(Conflict, QuotaExceeded):
                if action in {"archive", "label"}:
                    write(store_on(self.db.database), requests.act, action, job_id, caller=ADMIN, labels={"a": "b"})
                else:
                    write(
                        store_on(self.db.database),
                        requests.act,
                        action,
                        job_id,
                        caller=self._random.choice([SERVICE, ADMIN]),
                    )

    def _trim(self) -> None:
        keep = TrimLimits(log_bytes=self._random.choice([0, 8]), event_bytes=self._random.choice([0, 120]))
        for _ in cleanup.trim_finished_jobs(store_on(self.db.database), keep):
            pass

    def _delete(self) -> None:
        for job_id in self._some(JobState.CANCELLED, JobState.SUCCEEDED):
            self.db.write(lambda session, job_id=job_id: deletion.delete_job(session, job_id))

    def _sweep(self) -> None:
        owner = self._random.choice(["ada", "eve"])
        self.db.write(lambda session: add_sweep(session, owner=owner))

    def _remove_sweep(self) -> None:
        found = self.db.read(lambda session: session.scalars(select(Sweep.id).order_by(Sweep.id)).all())
        if found:
            self.db.write(lambda session: sweeps.remove(session, session.get_one(Sweep, found[0])))

    def _prefer(self) -> None:
        document = {"text": "\u00e4" * self._random.randint(0, 50)}
        self.db.write(lambda session: users.change_preferences(session, "ada", document))

    def _add_up(self) -> None:
        self.db.write(stored_counts.add_up)

    def _some(self, *states: JobState) -> list[str]:
        ids = self.db.read(lambda session: session.scalars(select(Job.id).where(Job.state.in_(states))).all())
        return self._random.sample(sorted(ids), min(len(ids), 2))


def add_sweep(session: Any, *, owner: str = "ada", text: str = "text") -> Sweep:
    spec = SweepSpec.model_validate({"name": "s", "job": JOB, "method": "list", "points": [{"name": text}]})
    spec = spec.model_copy(update={"monitor": "val/loss", "mode": "min"})
    sweep = submit.add(session, NewSweep(spec, Caller(owner, Role.MEMBER), "private"), spec)
    assert sweep is not None
    trials.add(session, sweep.id, [{"number": 0, "point": {"name": text}, "outcome": "failed", "error": "no"}])
    return sweep


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2, 3))])
def test_the_bytes_are_those_of_the_rows_at_every_point_of_a_history(db: StoreFixture, seed: int) -> None:
    history = History(db, seed)
    for _ in range(15):
        history.step()
        check(db)
    db.write(stored_counts.add_up)
    check(db)
    many = select(func.count(StoredCount.id)).group_by(StoredCount.owner)
    assert max(db.read(lambda session: session.scalars(many).all())) <= MOST_ROWS


def test_bytes_that_are_added_up_by_two_workers_while_jobs_come_stay_exact(db: StoreFixture) -> None:
    for _ in range(2 * MOST_ROWS):
        db.submit()
    submissions = [lambda: db.submit_many(3, owner="eve") for _ in range(4)]
    done = run_together(*submissions, *[lambda: db.write(stored_counts.add_up)] * 3)
    assert [found for found in done if isinstance(found, Exception)] == []
    check(db)


@quick_on_sqlite
def test_what_jobs_that_end_at_once_have_written_counts(db: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    free = FREE_WRITTEN_BYTES // 16
    monkeypatch.setattr(stored_counts, "FREE_WRITTEN_BYTES", free)
    limited(db, 1000)
    large = {"text": "x" * 199}
    with pytest.raises(QuotaExceeded, match="specs and notes of ada"):
        for _ in range(2 * free // 1000):
            with db.database.write() as session:
                quotas.Room(session, find_limits_of(session, ["ada"])).check("ada", devices=1, priority=0)
            for job_id in db.submit_many(20, labels=large):
                db.cancel(job_id)
    assert free < written(db, "ada") < free + 100_000


@pytest.mark.parametrize("what", ["sweep", "notes", "shorter notes"])
@quick_on_sqlite
def test_over_the_quota_nothing_more_is_written(db: StoreFixture, what: str) -> None:
    job_id = db.submit()
    db.write(lambda session: edits.change(session, job_id, JobPatch(notes="long notes")))
    limited(db, 0)
    if what == "shorter notes":
        db.write(lambda session: edits.change(session, job_id, JobPatch(notes="notes")))
        return
    with pytest.raises(QuotaExceeded):
        if what == "sweep":
            db.write(add_sweep)
        else:
            db.write(lambda session: edits.change(session, job_id, JobPatch(notes="much longer notes")))


@pytest.mark.parametrize("state", ["running", "queued"])
def test_who_pauses_and_resumes_a_job_without_end_is_told_of_the_quota(db: StoreFixture, state: str) -> None:
    limited(db, 1000)
    job_id = db.submit()
    if state == "running":
        db.running(job_id, db.worker())
    _written_before(db, FREE_WRITTEN_BYTES - 5_000)
    with pytest.raises(QuotaExceeded):
        for _ in range(200):
            write(store_on(db.database), requests.act, "pause", job_id, caller=ADA)
            write(store_on(db.database), requests.act, "resume", job_id, caller=ADA)
    assert written(db, "ada") < FREE_WRITTEN_BYTES + 3_000
    write(store_on(db.database), requests.act, "cancel", job_id, caller=ADA)  # what ends a job is never refused


@quick_on_sqlite
def test_changes_that_only_the_audit_keeps_are_counted_and_bounded(db: StoreFixture) -> None:
    limited(db, 0)
    job_id = db.submit()
    _written_before(db, FREE_WRITTEN_BYTES - 5_000)
    with pytest.raises(QuotaExceeded, match="audit entries are never deleted"):
        for number in range(200):
            write(store_on(db.database), requests.act, "label", job_id, caller=ADA, labels={"number": str(number)})
    assert written(db, "ada") < FREE_WRITTEN_BYTES + 2_000


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
@quick_on_sqlite
def test_a_request_that_changes_nothing_is_bounded_too(db: StoreFixture, action: JobAction) -> None:
    limited(db, 0)
    job_id = db.submit()
    write(store_on(db.database), requests.act, action, job_id, caller=ADA)
    _written_before(db, FREE_WRITTEN_BYTES - 5_000)
    with pytest.raises(QuotaExceeded):
        for _ in range(200):
            write(store_on(db.database), requests.act, action, job_id, caller=ADA)
    assert written(db, "ada") < FREE_WRITTEN_BYTES + 2_000


@pytest.mark.parametrize(
    "what",
    ["pause", *(pytest.param(ask, marks=pytest.mark.thorough) for ask in ("resume", "cancel")), "revoke", "keep"],
)
@quick_on_sqlite
def test_a_request_about_other_things_that_changes_nothing_is_bounded_too(db: StoreFixture, what: str) -> None:
    limited(db, 1000)
    store = store_on(db.database)
    made = db.write(lambda session: add_sweep(session).id)
    token = db.write(
        lambda session: tokens.make(session, "ada", name="mine", scopes=[], lifetime=None, caller=SERVICE)[0].id
    )
    job_id = db.submit(config={"code": f"bundle:sha256:{'a' * 64}"}, trainer="script") if what == "keep" else ""
    if what == "keep":
        db.running(job_id, db.worker())
    _written_before(db, FREE_WRITTEN_BYTES - 5_000)
    changes: dict[str, Callable[[], object]] = {
        "revoke": lambda: write(store, tokens.revoke, token, user="ada", caller=ADA),
        "keep": lambda: write(store, keeping.ask, job_id, ["results/"], ADA),
        "pause": lambda: write(store, sweep_requests.ask, "pause", made, caller=ADA),
        "resume": lambda: write(store, sweep_requests.ask, "resume", made, caller=ADA),
        "cancel": lambda: write(store, sweep_requests.ask, "cancel", made, caller=ADA),
    }
    with pytest.raises(QuotaExceeded):
        for _ in range(200):
            changes[what]()
    assert written(db, "ada") < FREE_WRITTEN_BYTES + 4_000


def _written_before(db: StoreFixture, size: int) -> None:
    """Has something else of `ada` take so many bytes."""
    db.write(lambda session: users.change_preferences(session, "ada", {"text": "x" * size}))


def test_a_quota_is_checked_without_reading_what_jobs_have_stored(db: StoreFixture) -> None:
    limited(db, 1 << 30)
    db.submit_many(3)
    with recorded_statements(db.database) as statements, db.database.write() as session:
        quotas.Room(session, find_limits_of(session, ["ada"])).check("ada", devices=1, priority=0)
    tables = ("checkpoints.size", "artifacts", "media", "bundles", "attempts", "jobs.spec")
    assert [each for each in statements if any(f" {table}" in each and "sum(" in each for table in tables)] == []
    assert [each for each in statements if "stored_counts" in each] != []


def limited(db: StoreFixture, stored_bytes: int) -> None:
    db.write(lambda session: users.add(session, "ada", Role.MEMBER, caller=SERVICE))
    db.write(
        lambda session: quotas.set_limits(session, "user", "ada", {Resource.STORED_BYTES: stored_bytes}, caller=SERVICE)
    )


def written(db: StoreFixture, owner: str) -> int:
    return db.read(lambda session: stored_counts.count(session, owner)).written


def check(db: StoreFixture) -> None:
    for owner in ("ada", "eve", ADMIN.name):
        assert db.read(lambda session, owner=owner: stored_counts.count(session, owner)) == counted(db.database, owner)


def counted(database: Database, owner: str) -> Stored:
    """What the rows say."""
    with database.read() as session:
        jobs = session.scalars(select(Job).where(Job.owner == owner)).all()
        ids = [job.id for job in jobs]
        cut = {job.id: (job.log_cut_to, job.events_cut_to) for job in jobs}
        attempts = session.scalars(select(Attempt).where(Attempt.job_id.in_(ids))).all()
        files = sum(
            each.point_bytes + min(each.log_bytes, cut[each.job_id][0]) + min(each.message_bytes, cut[each.job_id][1])
            for each in attempts
        )
        for table in (Checkpoint, Artifact):
            files += int(session.scalar(select(func.sum(table.size)).where(table.job_id.in_(ids))) or 0)
        swept = select(func.sum(bytes_of(SweepTrial.point))).join(Sweep, Sweep.id == SweepTrial.sweep_id)
        columns = (Job.spec, Job.card, Sweep.spec, Preferences.document)
        others = (select(func.sum(bytes_of(column))).where(column.class_.owner == owner) for column in columns)
        sums = [swept.where(Sweep.owner == owner), *others]
        written = sum(int(session.scalar(each) or 0) for each in sums)
        events = session.scalars(select(JobEvent).where(JobEvent.job_id.in_(ids))).all()
        asked = [event for event in events if "by" in event.data]
        texts = [session.scalar(select(bytes_of(JobEvent.data)).where(*_is(event))) or 0 for event in asked]
        audited = session.scalars(select(AuditEntry.object).where(AuditEntry.who == owner)).all()
        written += sum(size + ROW_BYTES for size in [*texts, *(len(each.encode()) for each in audited)])
        return Stored(files, written + sum(len((job.notes or "").encode()) for job in jobs))


def _is(event: JobEvent) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return JobEvent.job_id == event.job_id, JobEvent.seq == event.seq
