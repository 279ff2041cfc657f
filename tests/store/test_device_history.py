"""How devices were used: fine for a while, coarser for longer, never more than that."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.cluster import device_history
from store.cluster.facts import History, Sample, Use
from store.jobs import jobs
from store.tables import DeviceSample
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, recorded_statements

START = 1_800_000_000
"""The beginning of a slot of every resolution."""
IDLE = Use(0.0, 0.0, 100, None)


class Recorded:
    """A worker whose reports come at times that the test sets."""

    def __init__(self, db: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.db, self.now = db, START
        self.worker_id = db.worker()
        monkeypatch.setattr(device_history, "_read_now", self._now)

    def report(self, *utilizations: float | None, seconds: int = 5, memory: int | None = 100, **more: Any) -> None:
        """Stores reports of one device, `seconds` apart."""
        for utilization in utilizations:
            device = {"uuid": "gpu-0", "utilization": utilization, "memory_used_bytes": memory} | more
            self.db.write(
                lambda session, device=device: device_history.add_samples(
                    session, self.worker_id, [Sample(0.0, [device])]
                )
            )
            self.now += seconds

    def read(self, *, begins: int | None = None, ends: int | None = None, most: int = 1000) -> History:
        return self.db.read(
            lambda session: device_history.read(session, self.worker_id, begins=begins, ends=ends, most=most)
        )

    def used(self, **bounds: Any) -> dict[int, Use]:
        """Returns the device's use by seconds since START."""
        return {begins - START: uses["gpu-0"] for begins, uses in self.read(**bounds).slots.items()}

    def rows(self) -> dict[int, int]:
        """Returns the number of rows of each resolution."""
        query = select(DeviceSample.resolution, func.count()).group_by(DeviceSample.resolution)
        return {row[0]: row[1] for row in self.db.read(lambda session: session.execute(query).all())}

    def _now(self, _: Session) -> int:
        return self.now


@pytest.fixture
def recorded(db: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(db, monkeypatch)


def test_each_report_is_kept_as_it_is_for_an_hour(recorded: Recorded) -> None:
    recorded.report(0.5, None, 1.0)
    assert recorded.read().resolution == 5
    assert recorded.used() == {
        0: Use(0.5, 0.5, 100, None),
        5: Use(None, None, 100, None),
        10: Use(1.0, 1.0, 100, None),
    }
    recorded.now = START + 12
    recorded.report(0.25)
    assert recorded.used()[10] == Use(0.25, 0.25, 100, None), "the last report of a slot counts"


@quick_on_sqlite
def test_the_mean_power_is_kept_of_reports_that_tell_it(recorded: Recorded) -> None:
    recorded.report(*[0.5] * 10)
    recorded.report(0.5, power_watts=100.0)
    recorded.report(0.5, power_watts=200.5)
    recorded.now = START + 7200
    recorded.report(0.5)
    assert recorded.used(begins=START)[0] == Use(0.5, 0.5, 100, None, 150.2)


@quick_on_sqlite
def test_the_mean_and_the_greatest_of_a_minute_are_kept_for_longer(recorded: Recorded) -> None:
    recorded.report(*[0.0] * 9, None, 0.5, 1.0)
    recorded.report(0.5, memory=300)
    recorded.now = START + 7200
    recorded.report(0.125)
    found = recorded.read(begins=START)
    assert found.resolution == 60
    assert recorded.used(begins=START) == {
        0: Use(0.1364, 1.0, 100, None),
        60: Use(0.5, 0.5, 300, None),
        7200: Use(0.125, 0.125, 100, None),
    }
    assert recorded.used() == {7200: Use(0.125, 0.125, 100, None)}


def test_a_quarter_of_an_hour_is_made_of_its_minutes(recorded: Recorded) -> None:
    recorded.report(0.0, 1.0, seconds=60)
    recorded.now = START + 900
    recorded.report(0.75)
    recorded.now = START + 2 * 86_400
    recorded.report(0.25)
    assert recorded.used(begins=START) == {
        0: Use(0.5, 1.0, 100, None),
        900: Use(0.75, 0.75, 100, None),
        2 * 86_400: Use(0.25, 0.25, 100, None),
    }
    assert recorded.read(begins=START).resolution == 900
    assert recorded.used(begins=START, ends=START + 899).keys() == {0}


@quick_on_sqlite
def test_the_slot_that_goes_on_is_shown_as_it_is_so_far(recorded: Recorded) -> None:
    recorded.report(*[0.5] * 14)
    recorded.now += 2 * 3600 - 3600
    long_ago = recorded.now - 2 * 3600
    assert recorded.used(begins=long_ago) == {0: Use(0.5, 0.5, 100, None), 60: Use(0.5, 0.5, 100, None)}
    assert recorded.used(begins=recorded.now - 2 * 86_400) == {0: Use(0.5, 0.5, 100, None)}


@quick_on_sqlite
def test_more_slots_than_asked_for_are_merged(recorded: Recorded) -> None:
    recorded.report(*[0.0, 1.0] * 12)
    found = recorded.read(begins=START, most=3)
    assert (found.resolution % 5, len(found.slots) <= 3) == (0, True)
    assert {uses["gpu-0"].utilization_max for uses in found.slots.values()} == {1.0}
    assert recorded.read(begins=START + 600, ends=START).slots == {}


def test_a_device_is_named_after_the_job_that_held_it_longest(recorded: Recorded) -> None:
    db = recorded.db
    first = db.submit()
    db.claim(first, recorded.worker_id, "gpu-0")
    recorded.report(*[1.0] * 3)
    assert recorded.used()[0] == Use(1.0, 1.0, 100, first)
    other = replace(IDLE, job_id="job_other")
    slots = [{"gpu-0": IDLE}] * 5 + [{"gpu-0": other}] + [{"gpu-0": replace(IDLE, job_id=first)}] * 2
    assert device_history.merged(slots)["gpu-0"].job_id == first


@quick_on_sqlite
def test_a_worker_has_a_bounded_number_of_rows(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {5: timedelta(seconds=30), 15: timedelta(minutes=1), 60: timedelta(minutes=5)}
    monkeypatch.setattr(device_history, "KEPT", short)
    recorded.report(*[0.5] * 30)
    early = recorded.rows()
    recorded.report(*[0.5] * 90)
    assert early[5] == recorded.rows()[5] == 6
    assert recorded.rows() == {5: 6, 15: 4, 60: 5}


def test_the_history_of_a_worker_that_is_gone_ends(recorded: Recorded) -> None:
    recorded.report(*[0.5] * 14)
    for later, left in ((3600, {5: 14, 60: 1}), (3700, {60: 1}), (90_000, {})):
        recorded.now = START + later
        recorded.db.write(device_history.delete_old)
        assert recorded.rows() == left


def test_a_report_reads_who_holds_the_devices_of_its_own_worker(db: StoreFixture) -> None:
    own, other = db.worker("box-a"), db.worker("box-b")
    job_id = db.running(db.submit(), own).job_id
    db.running(db.submit(), other)
    assert db.read(lambda session: jobs.device_holders_on(session, own)) == {"slot-0": job_id}
    device = {"uuid": "slot-0", "utilization": 0.5, "memory_used_bytes": 1}
    with recorded_statements(db.database) as statements:
        db.write(lambda session: device_history.add_samples(session, own, [Sample(0.0, [device])]))
    (holders,) = [statement for statement in statements if "FROM allocations" in statement]
    assert "allocations.worker_id = " in holders
