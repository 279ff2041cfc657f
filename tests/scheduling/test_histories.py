"""What holds over days, whatever comes when, and whatever jobs say of their progress."""

from hypothesis import given

from scheduling.credit import MOST
from scheduling.snapshot import request_of
from tests.scheduling.histories import History, Simulation, histories

_MOST_US = MOST.total_seconds() * 1e6


@given(histories())
def test_no_device_is_given_twice_and_all_jobs_run(history: History) -> None:
    Simulation(history).run()


@given(histories())
def test_a_holder_starts_by_its_first_bound(history: History) -> None:
    assert Simulation(history).run().late == []


@given(histories())
def test_nobody_is_overtaken_by_an_equal_request_submitted_72_hours_later(history: History) -> None:
    """But for those that pass on a kept place, and for first looks."""
    starts = Simulation(history).run().starts
    for one in starts:
        job, kept = one.start.job, one.start.reservation
        if one.first_look or (kept is not None and kept.job_id != job.id):
            continue
        with_it = {other.start.job.id for other in starts if other.at == one.at}
        earlier = [
            other.id
            for other in one.line
            if request_of(other.resources) == request_of(job.resources) and other.submitted + _MOST_US <= job.submitted
        ]
        assert {*earlier} <= with_it


@given(histories())
def test_every_kept_place_has_one_holder_that_waits(history: History) -> None:
    for snapshot, planned in Simulation(history).run().plans:
        waiting = {job.id: job for job in snapshot.line}
        jobs = [one.job_id for one in planned.reservations]
        assert len({one.place for one in planned.reservations}) == len(jobs) == len({*jobs})
        assert {*jobs} <= waiting.keys()
        assert all(one.owner == waiting[one.job_id].owner for one in planned.reservations)
        assert all(one.due <= one.bound for one in planned.reservations)
