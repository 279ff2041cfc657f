"""What owners used of the devices is counted when attempts end, and jobs that are deleted change nothing of it."""

from dataclasses import replace

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from scheduling.usage import used_at
from store.attempts import claim as claims
from store.attempts.facts import Claim
from store.cluster import occupancy as cluster
from store.db.database import now_us
from store.jobs import deletion
from store.queue import usage, waiting
from store.tables import Attempt, Job, Usage
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, placement_on, run_together
from tests.store.test_races import PAIRS
from torchyard.contract.states import EndReason

HOUR = 3_600_000_000


def now(db: StoreFixture) -> int:
    return db.read(lambda session: session.execute(select(now_us())).scalar_one())


def used(db: StoreFixture, at: int | None = None, owners: list[str] | None = None) -> dict[tuple[str, str], float]:
    then = now(db) if at is None else at
    return db.read(lambda session: usage.used_seconds(session, now=then, owners=owners))


def began_earlier(db: StoreFixture, claim: Claim, us: int) -> None:
    """Lets the attempt have begun earlier."""
    past = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=Attempt.started_at - us)
    db.write(lambda session: session.execute(past))


def on_gpus(db: StoreFixture, job_id: str, worker: str, *uuids: str) -> Claim:
    placement = placement_on(worker, *uuids)
    gpus = replace(placement, devices=tuple(replace(device, kind="cuda") for device in placement.devices))
    claim = db.write(lambda session: claims.claim(session, job_id, gpus))
    assert claim is not None
    return claim


@quick_on_sqlite
def test_devices_count_from_the_claim_while_they_are_held_and_after_the_end(db: StoreFixture) -> None:
    worker = db.worker()
    gpus = on_gpus(db, db.submit(owner="ada"), worker, "GPU-1", "GPU-2")
    slot = db.starting(db.submit(owner="bob"), worker, "slot")
    assert used(db).keys() == {("ada", "cuda"), ("bob", "cpu")}
    began_earlier(db, gpus, 24 * HOUR)
    began_earlier(db, slot, HOUR)
    wanted = {
        ("ada", "cuda"): 2 * used_at(24 * HOUR, devices=1, began=0, ended=24 * HOUR),
        ("bob", "cpu"): used_at(HOUR, devices=1, began=0, ended=HOUR),
    }
    assert used(db) == pytest.approx(wanted, rel=1e-3)
    assert used(db, owners=["bob", "nobody"]).keys() == {("bob", "cpu")}
    db.end(gpus, EndReason.PREEMPTED)
    db.end(slot, EndReason.USER_ERROR)
    assert used(db) == pytest.approx(wanted, rel=1e-3)
    assert used(db, now(db) + 24 * HOUR) == pytest.approx({key: s / 2 for key, s in wanted.items()}, rel=1e-3)


@quick_on_sqlite
def test_attempts_add_up_over_time(db: StoreFixture) -> None:
    worker, job_id = db.worker(), db.submit()
    for _ in range(3):
        claim = db.starting(job_id, worker)
        began_earlier(db, claim, HOUR)
        db.end(claim, EndReason.PREEMPTED)
    earlier = update(Usage).values(at=Usage.at - 24 * HOUR)
    db.write(lambda session: session.execute(earlier))
    hour = used_at(HOUR, devices=1, began=0, ended=HOUR)
    assert used(db)["ada", "cpu"] == pytest.approx(1.5 * hour, rel=1e-3)
    claim = db.starting(job_id, worker)
    began_earlier(db, claim, HOUR)
    db.end(claim, EndReason.PREEMPTED)
    assert used(db)["ada", "cpu"] == pytest.approx(2.5 * hour, rel=1e-3)


def test_a_rescued_attempt_counts_and_a_deleted_job_still_does(db: StoreFixture) -> None:
    job_id = db.submit()
    claim = db.starting(job_id, db.worker())
    began_earlier(db, claim, HOUR)
    db.expire(claim)
    assert db.rescue(claim)
    before = used(db)["ada", "cpu"]
    assert before == pytest.approx(3600, rel=0.02)
    db.cancel(job_id)
    db.write(lambda session: deletion.delete_job(session, job_id))
    assert used(db)["ada", "cpu"] == pytest.approx(before, rel=1e-3)


def test_a_clock_that_jumps_back_adds_nothing_and_leaves_no_time_ahead(db: StoreFixture) -> None:
    worker = db.worker()
    later = Usage(owner="ada", kind="cpu", used_s=100.0, at=now(db) + 1000 * HOUR)
    db.write(lambda session: session.add(later))
    claim = db.running(db.submit(), worker)
    began_earlier(db, claim, -HOUR)
    assert used(db)["ada", "cpu"] == 100
    db.end(claim, EndReason.COMPLETED)
    assert used(db)["ada", "cpu"] == pytest.approx(100, rel=1e-3)
    assert used(db, now(db) + 24 * HOUR)["ada", "cpu"] == pytest.approx(50, rel=1e-3)


def test_attempts_that_end_together_all_count(db: StoreFixture) -> None:
    worker = db.worker()
    for number in range(PAIRS):
        running = [db.running(db.submit(), worker, f"{number}-{one}") for one in range(3)]
        for claim in running:
            began_earlier(db, claim, HOUR)
        run_together(*(lambda claim=claim: db.end(claim, EndReason.COMPLETED) for claim in running))
    assert used(db)["ada", "cpu"] == pytest.approx(3 * PAIRS * used_at(HOUR, devices=1, began=0, ended=HOUR), rel=1e-3)


@quick_on_sqlite
def test_a_thousand_owners_are_read_at_once(db: StoreFixture) -> None:
    rows = [Usage(owner=f"owner-{number}", kind="cpu", used_s=float(number), at=now(db)) for number in range(1, 1001)]
    db.write(lambda session: session.add_all(rows))
    found = used(db, owners=[row.owner for row in rows])
    assert len(found) == 1000
    assert found["owner-1000", "cpu"] == pytest.approx(1000, rel=1e-3)


def test_the_last_two_lengths_of_a_trainer_are_kept_over_all_attempts(db: StoreFixture) -> None:
    worker = db.worker()

    def lengths() -> dict[tuple[str, str], int]:
        return db.read(usage.usual_lengths)

    def run(*attempts: int, end: EndReason = EndReason.COMPLETED) -> int:
        job_id = db.submit()
        for number, us in enumerate(attempts, start=1):
            claim = db.running(job_id, worker)
            began_earlier(db, claim, us)
            db.end(claim, end if number == len(attempts) else EndReason.PREEMPTED)
        return db.job(job_id).ran_us

    run(HOUR, end=EndReason.DATA_ERROR)
    assert lengths() == {}
    first = run(HOUR, HOUR)
    assert first >= 2 * HOUR
    assert lengths() == {("ada", "script"): first}
    second = run(4 * HOUR)
    assert lengths() == {("ada", "script"): (first + second) // 2}
    third = run(10 * HOUR)
    assert lengths() == {("ada", "script"): (second + third) // 2}
    assert db.read(lambda session: usage.usual_lengths(session, ["bob"])) == {}
    assert _ran(db) >= 17 * HOUR


def test_what_a_job_waited_before_its_first_start_is_told_apart(db: StoreFixture) -> None:
    job_id, worker = db.submit(preemptible=True), db.worker()

    def wait(us: int) -> None:
        earlier = update(Job).values(lined_at=Job.lined_at - us)
        db.write(lambda session: session.execute(earlier))

    def after_its_first_start() -> float:
        (running,) = db.read(cluster.running)
        return running.waited_us / HOUR

    wait(20 * HOUR)
    db.pause(job_id)
    db.resume(job_id)
    wait(10 * HOUR)
    claim = db.running(job_id, worker)
    assert after_its_first_start() == 0
    db.end(claim, EndReason.PREEMPTED)
    wait(5 * HOUR)
    (waits,) = db.read(lambda session: waiting.waiting_among(session, [job_id]))
    assert waits.waited_us / HOUR == pytest.approx(35, rel=1e-3)
    claim = db.running(job_id, worker)
    assert after_its_first_start() == pytest.approx(5, rel=1e-3)
    db.end(claim, EndReason.PREEMPTED)
    wait(HOUR)
    db.running(job_id, worker)
    assert after_its_first_start() == pytest.approx(6, rel=1e-3)


def _ran(db: StoreFixture) -> int:
    def total(session: Session) -> int:
        return sum(session.scalars(select(Job.ran_us)))

    return db.read(total)
