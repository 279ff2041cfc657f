"""What holds over days, whatever comes when, and whatever jobs say of their progress."""

from collections.abc import Sequence

from hypothesis import given

from scheduling.credit import MOST
from scheduling.snapshot import Waiting
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
    """Except by a job that passes one that fits nowhere, by a first look, and by a job with a kept place."""
    past = Simulation(history).run()
    for one in past.starts:
        job, kept = one.start.job, one.start.reservation
        others_wait = any(place.job_id != job.id for place in one.reservations)
        if not one.first_look and not others_wait and (kept is None or kept.job_id == job.id):
            with_it = {other.start.job.id for other in past.starts if other.at == one.at}
            # A job that was stopped for a first look comes back to a place that is another's by then.
            line = [other for other in one.line if one.kept_since is None or one.at - other.waited_us <= one.kept_since]
            assert _earlier(job, line) <= with_it


@given(histories())
def test_no_place_is_kept_for_a_request_before_an_equal_one_submitted_72_hours_earlier(history: History) -> None:
    for snapshot, planned in Simulation(history).run().plans:
        line = {job.id: job for job in snapshot.line}
        before = {one.job_id for one in snapshot.reservations}
        served = {start.job.id for start in planned.starts} | {one.job_id for one in planned.reservations}
        served |= {one.job_id for one in snapshot.displacements}
        for one in planned.reservations:
            if one.job_id not in before:
                assert _earlier(line[one.job_id], snapshot.line) <= served


@given(histories())
def test_every_kept_place_has_one_holder_that_waits(history: History) -> None:
    for snapshot, planned in Simulation(history).run().plans:
        waiting = {job.id: job for job in snapshot.line}
        jobs = [one.job_id for one in planned.reservations]
        assert len({one.place for one in planned.reservations}) == len(jobs) == len({*jobs})
        assert {*jobs} <= waiting.keys()
        assert all(one.owner == waiting[one.job_id].owner for one in planned.reservations)
        assert all(one.due <= one.bound for one in planned.reservations)


def _earlier(job: Waiting, line: Sequence[Waiting]) -> set[str]:
    """Returns the jobs of the line with an equal request that were submitted so long before that none may overtake."""
    return {other.id for other in line if other.request == job.request and other.submitted + _MOST_US <= job.submitted}
