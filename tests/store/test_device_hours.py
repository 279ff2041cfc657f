"""Usage is read by owner and by label: ended attempts by day, those that run with what they have had so far."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import func, select, update

from scheduling.snapshot import Kind
from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.cluster import device_days
from store.cluster.device_days import Asked, Key
from store.cluster.usage_facts import Figures, UsageFacts
from store.pages import FactPage
from store.tables import Attempt, AttemptUse, DeviceDay, Job, Usage
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, placement_on, recorded_statements
from torchyard.contract.states import EndReason

HOUR = 3_600_000_000
BY_OWNER = Asked(by_label=False, owner=None, days=30)
BY_LABEL = replace(BY_OWNER, by_label=True)


def claimed(db: StoreFixture, job_id: str, worker: str, *uuids: str, kind: Kind = "cpu", hours: int = 1) -> Claim:
    placement = placement_on(worker, *uuids)
    devices = tuple(replace(device, kind=kind) for device in placement.devices)
    claim = db.write(lambda session: claims.claim(session, job_id, replace(placement, devices=devices)))
    assert claim is not None
    past = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=Attempt.started_at - hours * HOUR)
    db.write(lambda session: session.execute(past))
    return claim


def read(db: StoreFixture, asked: Asked, *, after: Key | None = None, limit: int = 100) -> FactPage[UsageFacts]:
    return db.read(lambda session: device_days.list_usage(session, asked, after=after, limit=limit))


def hours(rows: Sequence[UsageFacts]) -> dict[Key, dict[str, int]]:
    """Returns the whole hours of all days, by owner and label, and by kind."""
    return {
        (row.owner, row.label): {kind: figures.held_us // HOUR for kind, figures in row.total.items()} for row in rows
    }


def test_who_runs_a_job_has_its_hours_at_once_and_the_same_ones_after_its_end(db: StoreFixture) -> None:
    worker = db.worker()
    db.end(claimed(db, db.submit(labels={"run": "a"}), worker, "0", hours=30), EndReason.PREEMPTED)
    open_claim = claimed(db, db.submit(labels={"run": "a"}), worker, "1", "2", kind="cuda", hours=50)
    use = AttemptUse(attempt_id=open_claim.attempt_id, seen_at=0, measured_us=HOUR, busy_us=HOUR // 2, idle_us=7)
    db.write(lambda session: session.add(use))
    wanted = {"cpu": 30, "cuda": 100}
    before = read(db, BY_OWNER).items
    assert hours(before) == {("ada", ""): wanted}
    assert hours(read(db, BY_LABEL).items) == {("ada", "run=a"): wanted}
    assert before[0].total["cuda"][1:] == (HOUR, HOUR // 2, 7)
    assert 3 <= len(before[0].days) <= 4
    assert sum(kinds["cuda"].held_us for kinds in before[0].days.values() if "cuda" in kinds) // HOUR == 100
    db.end(open_claim, EndReason.PREEMPTED)
    after = read(db, BY_OWNER).items
    assert hours(after) == {("ada", ""): wanted}
    assert after[0].total["cuda"][1:] == (HOUR, HOUR // 2, 7)


@quick_on_sqlite
def test_an_attempt_in_a_pool_counts_while_it_runs_and_not_while_it_waits(db: StoreFixture) -> None:
    worker = db.worker()
    for uuid, running_at in (("a", None), ("b", Attempt.started_at + 4 * HOUR)):
        claim = claimed(db, db.submit(), worker, uuid, hours=9)
        change = update(Attempt).where(Attempt.id == claim.attempt_id).values(pool_devices=16, running_at=running_at)
        db.write(lambda session, change=change: session.execute(change))
    db.write(lambda session: session.execute(update(Job).values(device_request="cuda")))
    assert hours(read(db, BY_OWNER).items) == {("ada", ""): {"cuda": 80}}


def test_pages_have_each_row_once_whether_its_attempts_run_or_have_ended(db: StoreFixture) -> None:
    worker = db.worker()
    labels = [{"a": "1"}, {"a": "ä", "a-b": "2"}, {"Z": "=1"}, {"a": "\N{GRINNING FACE}"}]
    for number, owner in enumerate(("ada", "Bob", "a-b", "ab")):
        for place, label in enumerate(labels):
            claim = claimed(db, db.submit(owner=owner, labels=label), worker, f"{number}-{place}")
            if (number + place) % 2:
                db.end(claim, EndReason.PREEMPTED)
    for asked, count in ((BY_OWNER, 4), (BY_LABEL, 20)):
        found: list[UsageFacts] = []
        after, has_more = None, True
        while has_more:
            page = read(db, asked, after=after, limit=3)
            found += page.items
            after, has_more = (page.items[-1].owner, page.items[-1].label), page.has_more
        keys = [(row.owner, row.label) for row in found]
        assert keys == sorted({*keys})
        assert len(keys) == count
        assert hours(found) == hours(read(db, asked).items)


def test_rows_of_one_owner_and_of_nobody(db: StoreFixture) -> None:
    worker = db.worker()
    for number, owner in enumerate(("ada", "bob")):
        db.end(claimed(db, db.submit(owner=owner, labels={"x": "y"}), worker, str(number)), EndReason.PREEMPTED)
    for asked in (BY_OWNER, BY_LABEL):
        assert [row.owner for row in read(db, replace(asked, owner="bob")).items] == ["bob"]
        assert read(db, replace(asked, owner="carol")).items == []


@quick_on_sqlite
def test_days_are_those_up_to_today_and_the_total_has_all(db: StoreFixture) -> None:
    db.end(claimed(db, db.submit(), db.worker(), "0", hours=40 * 24), EndReason.PREEMPTED)
    for days in (1, 30, 366):
        (row,) = read(db, replace(BY_OWNER, days=days)).items
        assert len(row.days) == min(days, 41)
        assert row.total["cpu"].held_us // HOUR == 40 * 24
    ahead = update(DeviceDay).values(day=DeviceDay.day + 1000)
    db.write(lambda session: session.execute(ahead))
    (row,) = read(db, BY_OWNER).items
    assert (row.days, row.total["cpu"].held_us // HOUR) == ({}, 40 * 24), "days of a clock that was ahead"


@quick_on_sqlite
def test_a_thousand_owners_are_read_by_a_few_statements(db: StoreFixture) -> None:
    day = db.read(lambda session: session.scalar(select(func.max(Attempt.started_at)))) or 0
    owners = [f"owner-{number:04}" for number in range(1000)]
    figures = Figures(HOUR)._asdict()
    rows = [
        DeviceDay(owner=owner, label=label, day=day, kind="cpu", **figures) for owner in owners for label in ("", "a=b")
    ]
    rows += [Usage(owner=owner, kind="cpu", used_s=0.0, at=0) for owner in owners]
    db.write(lambda session: session.add_all(rows))
    for asked in (BY_OWNER, BY_LABEL):
        with recorded_statements(db.database) as statements:
            page = read(db, asked, limit=1000)
        assert ([row.owner for row in page.items], page.has_more) == (owners, False)
        assert len(statements) <= 6
