"""How well an attempt uses its GPUs is counted by the reports of its worker, and only where they tell it."""

from collections.abc import Mapping
from dataclasses import replace
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest
from sqlalchemy import select, update

from store.attempts import claim as claims
from store.attempts import use as attempt_use
from store.attempts.facts import Claim
from store.attempts.use import Use, counted
from store.cluster.facts import Sample
from store.jobs import deletion
from store.tables import Attempt, AttemptUse
from tests.store.fixture import StoreFixture, placement_on, recorded_statements
from torchyard.contract.states import EndReason

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
BEGUN = Use(START)


def on_gpus(db: StoreFixture, worker: str, *uuids: str) -> Claim:
    placement = placement_on(worker, *uuids)
    gpus = replace(placement, devices=tuple(replace(device, kind="cuda") for device in placement.devices))
    job_id = db.submit()
    claim = db.write(lambda session: claims.claim(session, job_id, gpus))
    assert claim is not None
    return claim


def report(db: StoreFixture, worker: str, shares: Mapping[str, float | None], *, kind: str = "cuda") -> None:
    devices: list[dict[str, Any]] = [
        {"uuid": uuid, "kind": kind, "utilization": share} for uuid, share in shares.items()
    ]
    db.write(lambda session: attempt_use.add(session, worker, [Sample(0.0, devices)]))


def uses(db: StoreFixture) -> dict[int, Use]:
    rows = db.read(lambda session: session.scalars(select(AttemptUse)).all())
    return {row.attempt_id: Use(*(getattr(row, name) for name in Use._fields)) for row in rows}


def began_earlier(db: StoreFixture, claim: Claim, us: int) -> None:
    past = update(Attempt).where(Attempt.id == claim.attempt_id).values(started_at=Attempt.started_at - us)
    db.write(lambda session: session.execute(past))


def test_each_device_counts_by_its_share_for_the_time_since_the_report_before() -> None:
    now = START + 5 * SECOND
    assert counted(BEGUN, [0.5, 0.01], now=now) == Use(now, 10 * SECOND, 2_550_000, 5 * SECOND, None)


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_a_device_that_tells_nothing_is_not_measured_and_its_attempt_is_not_idle(unknown: float | None) -> None:
    now = START + 5 * SECOND
    assert counted(BEGUN, [0.0, unknown], now=now) == Use(now, 5 * SECOND, 0, 5 * SECOND, None)


def test_an_attempt_is_idle_since_all_its_devices_were_idle_in_a_row() -> None:
    first = counted(BEGUN, [0.0, 0.04], now=START + 5 * SECOND)
    assert first.idle_since == START + 5 * SECOND
    second = counted(first, [0.0, 0.0], now=START + 10 * SECOND)
    assert second.idle_since == START + 5 * SECOND
    used = counted(second, [0.0, 0.05], now=START + 15 * SECOND)
    assert used.idle_since is None
    assert counted(used, [0.0, 0.0], now=START + 20 * SECOND).idle_since == START + 20 * SECOND


def test_a_gap_counts_for_15_seconds_and_one_of_more_than_a_minute_ends_the_idle_time() -> None:
    idle = counted(BEGUN, [0.0], now=START + 5 * SECOND)
    short, long = (counted(idle, [0.0], now=idle.seen_at + us) for us in (60 * SECOND, 60 * SECOND + 1))
    assert (short.measured_us, short.idle_since) == (20 * SECOND, idle.idle_since)
    assert (long.measured_us, long.idle_since) == (20 * SECOND, long.seen_at)


def test_a_clock_that_jumps_back_counts_nothing_and_ends_the_idle_time() -> None:
    idle = counted(BEGUN, [0.0], now=START + 5 * SECOND)
    back = counted(idle, [0.0], now=START - SECOND)
    assert (back.measured_us, back.idle_since) == (5 * SECOND, START - SECOND)


@given(
    shares=st.lists(st.none() | st.floats(), min_size=1, max_size=4),
    steps=st.lists(st.integers(-(10**8), 10**8), max_size=5),
)
def test_no_report_makes_a_figure_negative_or_the_busy_time_longer_than_the_measured(
    shares: list[float | None], steps: list[int]
) -> None:
    use = BEGUN
    for step in steps:
        use = counted(use, shares, now=use.seen_at + step)
        assert 0 <= use.busy_us <= use.measured_us
        assert 0 <= use.idle_us <= use.measured_us


def test_a_report_counts_for_the_open_attempts_of_its_worker_on_gpus(db: StoreFixture) -> None:
    worker, other = db.worker(), db.worker("box-b")
    two, one = on_gpus(db, worker, "GPU-1", "GPU-2"), on_gpus(db, worker, "GPU-3")
    elsewhere = on_gpus(db, other, "GPU-1")
    db.starting(db.submit(), worker, "slot")
    for claim in (two, one, elsewhere):
        began_earlier(db, claim, 3600 * SECOND)
    report(db, worker, {"GPU-1": 0.0, "GPU-2": 1.0, "GPU-3": 0.0, "slot": 0.0})
    report(db, worker, {"GPU-1": 0.0, "GPU-2": 1.0, "GPU-3": 0.0})
    found = uses(db)
    assert found.keys() == {two.attempt_id, one.attempt_id}
    assert 30 * SECOND <= found[two.attempt_id].measured_us < 60 * SECOND
    assert found[two.attempt_id].busy_us == found[two.attempt_id].idle_us == found[one.attempt_id].measured_us
    assert found[two.attempt_id].idle_since is None
    assert found[one.attempt_id].idle_since is not None


def test_each_sample_of_a_report_counts_for_its_own_time_and_once(db: StoreFixture) -> None:
    worker = db.worker()
    claim = on_gpus(db, worker, "GPU-1")
    began_earlier(db, claim, 3600 * SECOND)
    device = {"uuid": "GPU-1", "kind": "cuda"}
    samples = [Sample(20.0, [device | {"utilization": 1.0}]), Sample(0.0, [device | {"utilization": 0.0}])]
    db.write(lambda session: attempt_use.add(session, worker, samples))
    first = uses(db)[claim.attempt_id]
    assert (first.busy_us, first.idle_us) == (15 * SECOND, 15 * SECOND)
    db.write(lambda session: attempt_use.add(session, worker, samples))
    again = uses(db)[claim.attempt_id]
    assert again.busy_us == first.busy_us
    assert again.measured_us - first.measured_us == again.seen_at - first.seen_at


def test_a_device_that_the_worker_does_not_name_tells_nothing(db: StoreFixture) -> None:
    worker = db.worker()
    claim = on_gpus(db, worker, "GPU-1", "GPU-2")
    report(db, worker, {"GPU-1": 0.0})
    assert uses(db)[claim.attempt_id].idle_since is None


def test_cpu_slots_are_never_counted_and_cost_no_statement(db: StoreFixture) -> None:
    worker = db.worker()
    db.starting(db.submit(), worker, "slot")
    with recorded_statements(db.database) as statements:
        report(db, worker, {"slot": 0.0}, kind="cpu")
    assert statements == []
    with recorded_statements(db.database) as statements:
        report(db, worker, {"GPU-1": 0.0})
    assert (len(statements), uses(db)) == (1, {})


def test_nothing_is_left_of_an_attempt_that_has_ended(db: StoreFixture) -> None:
    worker = db.worker()
    claim = on_gpus(db, worker, "GPU-1")
    report(db, worker, {"GPU-1": 0.0})
    db.end(claim, EndReason.USER_ERROR)
    db.cancel(claim.job_id)
    assert uses(db) == {}
    db.write(lambda session: deletion.delete_job(session, claim.job_id))


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_report_beside_the_end_of_an_attempt_waits_for_nothing_and_leaves_nothing(db: StoreFixture) -> None:
    worker = db.worker()
    claim = on_gpus(db, worker, "GPU-1")
    ended = update(Attempt).where(Attempt.id == claim.attempt_id).values(ended_at=Attempt.started_at + 1)
    with db.database.write() as session:
        session.execute(ended)
        report(db, worker, {"GPU-1": 0.0})
    report(db, worker, {"GPU-1": 0.0})
    assert uses(db) == {}
