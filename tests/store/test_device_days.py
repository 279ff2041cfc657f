"""What owners had of the devices is counted by day when attempts end: exactly, once, and for ever."""

from collections import Counter
from dataclasses import replace
import random

from hypothesis import given
from hypothesis import strategies as st
import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from scheduling.snapshot import Kind
from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.cluster.usage_facts import DAY_US, MOST_DAYS, Figures, Held
from store.jobs import deletion
from store.tables import Allocation, Attempt, AttemptUse, DeviceDay, Job
from store.team import users
from store.team.callers import SERVICE
from tests.databases import quick_on_sqlite
from tests.sessions import write
from tests.store.fixture import StoreFixture, placement_on, recorded_statements, run_together, store_on
from tests.store.test_races import PAIRS
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

HOUR = 3_600_000_000
START = 20_000 * DAY_US
TIMES = st.integers(START - 3 * DAY_US, START + 3 * DAY_US)
US = st.integers(0, 8 * DAY_US)


def claimed(db: StoreFixture, job_id: str, worker: str, *uuids: str, kind: Kind = "cpu") -> Claim:
    placement = placement_on(worker, *uuids)
    devices = tuple(replace(device, kind=kind) for device in placement.devices)
    claim = db.write(lambda session: claims.claim(session, job_id, replace(placement, devices=devices)))
    assert claim is not None
    return claim


def began_earlier(db: StoreFixture, claim: Claim, us: int) -> None:
    past = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=Attempt.started_at - us)
    db.write(lambda session: session.execute(past))


def rows(db: StoreFixture, label: str = "") -> list[DeviceDay]:
    query = select(DeviceDay).where(DeviceDay.label == label).order_by(DeviceDay.owner, DeviceDay.kind, DeviceDay.day)
    return db.read(lambda session: [*session.scalars(query)])


def held(db: StoreFixture, label: str = "") -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for row in rows(db, label):
        found[row.owner, row.kind] += row.held_us
    return found


@given(began=TIMES, ended=TIMES, devices=st.integers(1, 9), use=st.tuples(US, US, US))
def test_days_have_each_moment_once_and_their_sums_are_exact(
    began: int, ended: int, devices: int, use: tuple[int, int, int]
) -> None:
    days = Held("cuda", devices, began, ended, *use).by_day()
    for day, figures in days.items():
        us = min(ended, (day + 1) * DAY_US) - max(began, day * DAY_US)
        assert figures.held_us == us * devices > 0
        assert all(0 <= each <= figures.held_us for each in figures)
    whole = max(0, ended - began) * devices
    measured = min(use[0], whole)
    sums = [sum(column) for column in zip(*days.values(), strict=True)] or [0, 0, 0, 0]
    assert sums == ([whole, measured, min(use[1], measured), min(use[2], measured)] if whole else [0, 0, 0, 0])
    assert [*days] == [*range(began // DAY_US, (ended - 1) // DAY_US + 1)] * (whole > 0)


def test_of_an_attempt_of_decades_the_last_days_are_told_apart() -> None:
    days = Held("cpu", 2, 0, START).by_day()
    assert (min(days), max(days), len(days)) == (20_000 - MOST_DAYS, 19_999, MOST_DAYS)
    assert sum(figures.held_us for figures in days.values()) == 2 * START
    assert days[19_999] == Figures(2 * DAY_US)


class History:
    """A random history, with what the attempts of deleted jobs had."""

    def __init__(self, db: StoreFixture, seed: int) -> None:
        self.db, self.random = db, random.Random(seed)
        self.store, self.worker = store_on(db.database), db.worker()
        self.open: list[Claim] = []
        self.waiting: list[str] = []
        self.deleted = Counter[tuple[str, str]]()
        self._number = 0
        for owner in ("ada", "bob"):
            write(self.store, users.add, owner, Role.MEMBER, caller=SERVICE)

    def go_on(self) -> None:
        """Does the next thing: whatever is possible of what may happen to a job."""
        self.random.choice([self._submit, self._claim, self._claim, self._end, self._lose, self._delete, self._turn])()

    def end_all(self) -> None:
        while self.open:
            self._end()

    def expected(self) -> Counter[tuple[str, str]]:
        return self.db.read(self._attempts) + self.deleted

    def _submit(self) -> None:
        owner = self.random.choice(["ada", "bob"])
        self.waiting.append(self.db.submit(owner=owner, labels={"team": owner, "n": "1"}, max_restarts=100))

    def _claim(self) -> None:
        if not self.waiting:
            return
        job_id = self.waiting.pop(self.random.randrange(len(self.waiting)))
        self._number += 3
        uuids = [f"device-{self._number + one}" for one in range(self.random.randint(1, 3))]
        claim = claimed(self.db, job_id, self.worker, *uuids, kind=self.random.choice(["cuda", "cpu"]))
        began_earlier(self.db, claim, self.random.choice([0, HOUR, 30 * HOUR, 40 * 24 * HOUR, -HOUR]))
        self.open.append(claim)

    def _end(self) -> None:
        if not self.open:
            return
        claim = self.open.pop(self.random.randrange(len(self.open)))
        reasons = [EndReason.PREEMPTED, EndReason.USER_ERROR, EndReason.DATA_ERROR, EndReason.PAUSED]
        self.db.end(claim, self.random.choice(reasons))
        self._wait_again(claim)

    def _lose(self) -> None:
        if not self.open:
            return
        claim = self.open.pop()
        self.db.expire(claim)
        assert self.db.rescue(claim)
        assert not self.db.rescue(claim)
        self._wait_again(claim)

    def _wait_again(self, claim: Claim) -> None:
        free = update(Job).where(Job.id == claim.job_id).values(not_before=None)
        self.db.write(lambda session: session.execute(free))
        if self.db.job(claim.job_id).state == "queued":
            self.waiting.append(claim.job_id)

    def _delete(self) -> None:
        if not self.waiting:
            return
        job_id = self.waiting.pop()
        self.deleted += self.db.read(lambda session: self._attempts(session, job_id))
        self.db.cancel(job_id)
        self.db.write(lambda session: deletion.delete_job(session, job_id))

    def _turn(self) -> None:
        disabled = self.random.random() < 0.5
        write(self.store, users.change, "bob", disabled=disabled, caller=SERVICE)

    @staticmethod
    def _attempts(session: Session, job_id: str | None = None) -> Counter[tuple[str, str]]:
        query = select(Job.owner, Allocation.kind, Attempt.started_at, Attempt.ended_at)
        query = query.join(Attempt, Attempt.job_id == Job.id).join(Allocation, Allocation.attempt_id == Attempt.id)
        query = query if job_id is None else query.where(Job.id == job_id)
        found = Counter[tuple[str, str]]()
        for owner, kind, began, ended in session.execute(query.where(Attempt.ended_at.is_not(None))):
            assert ended is not None
            found[owner, kind] += max(0, ended - began)
        return found


@quick_on_sqlite
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))])
def test_the_days_of_an_owner_have_what_the_attempts_had(db: StoreFixture, seed: int) -> None:
    history = History(db, seed)
    for _ in range(60):
        history.go_on()
        assert held(db) == history.expected()
    history.end_all()
    assert held(db) == history.expected()
    assert held(db, "n=1") == history.expected()
    assert held(db, "team=ada") == {key: us for key, us in history.expected().items() if key[0] == "ada"}


def test_the_use_of_gpus_goes_to_the_days_with_the_attempt(db: StoreFixture) -> None:
    claim = claimed(db, db.submit(labels={"run": "a=b"}), db.worker(), "GPU-1", "GPU-2", kind="cuda")
    began_earlier(db, claim, 48 * HOUR)
    use = AttemptUse(attempt_id=claim.attempt_id, seen_at=0, measured_us=40 * HOUR, busy_us=20 * HOUR, idle_us=7)
    db.write(lambda session: session.add(use))
    db.end(claim, EndReason.PREEMPTED)
    for label in ("", "run=a=b"):
        found = rows(db, label)
        assert len(found) == 3
        sums = [sum(getattr(row, name) for row in found) for name in Figures._fields]
        assert sums[0] // HOUR == 96
        assert sums[1:] == [40 * HOUR, 20 * HOUR, 7]
    assert db.read(lambda session: session.scalars(select(AttemptUse)).all()) == []


def test_an_attempt_in_a_pool_counts_from_when_it_runs(db: StoreFixture) -> None:
    worker = db.worker()
    never, ran = (db.starting(db.submit(), worker, uuid) for uuid in ("a", "b"))
    for claim, running_at in ((never, None), (ran, Attempt.started_at - HOUR)):
        of_pool = update(Attempt).where(Attempt.id == claim.attempt_id)
        change = of_pool.values(pool_devices=16, running_at=running_at, started_at=Attempt.started_at - 9 * HOUR)
        db.write(lambda session, change=change: session.execute(change))
        request = update(Job).where(Job.id == claim.job_id).values(device_request="cuda")
        db.write(lambda session, request=request: session.execute(request))
        db.end(claim, EndReason.PREEMPTED)
    row = db.attempt(ran)
    assert row.ended_at is not None and row.running_at is not None
    assert held(db) == {("ada", "cuda"): 16 * (row.ended_at - row.running_at)}


def test_a_long_attempt_with_many_labels_is_added_by_one_statement(db: StoreFixture) -> None:
    claim = db.starting(db.submit(labels={f"key-{number}": "x" for number in range(10)}), db.worker())
    began_earlier(db, claim, 30 * 24 * HOUR)
    with recorded_statements(db.database) as statements:
        db.end(claim, EndReason.PREEMPTED)
    assert sum("device_days" in statement for statement in statements) == 1
    assert {len(rows(db, f"key-{number}=x")) for number in range(10)} == {31}


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_attempts_that_end_together_all_count(db: StoreFixture) -> None:
    worker, labels = db.worker(), {"a": "1", "b": "2", "c": "3"}
    for number in range(PAIRS):
        kinds = ("cuda", "cpu", "cuda")
        running = [
            claimed(db, db.submit(labels=labels), worker, f"{number}-{one}", kind=kind)
            for one, kind in enumerate(kinds)
        ]
        for claim in running:
            began_earlier(db, claim, 72 * HOUR)
        run_together(*(lambda claim=claim: db.end(claim, EndReason.PREEMPTED) for claim in running))
    hours = {key: us // HOUR for key, us in held(db).items()}
    assert hours == {("ada", "cuda"): 2 * 72 * PAIRS, ("ada", "cpu"): 72 * PAIRS}
    assert held(db, "a=1") == held(db, "c=3") == held(db)
