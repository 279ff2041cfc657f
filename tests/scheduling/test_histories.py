"""What holds over days, whatever comes when, and whatever jobs say of their progress."""

from collections.abc import Sequence

from hypothesis import given, settings

from scheduling.credit import MOST
from scheduling.snapshot import Snapshot, Waiting
from scheduling.steps import Plan
from tests.scheduling.histories import History, Past, Simulation, histories

_MOST_US = MOST.total_seconds() * 1e6


@settings(max_examples=2 * settings().max_examples)
@given(histories())
def test_a_history_keeps_every_promise(history: History) -> None:
    """Each example is played once: that no device is given twice and that all jobs run is seen on the way."""
    past = Simulation(history).run()
    assert past.late == [], "a holder starts by its first bound"
    _check_nobody_is_overtaken(past)
    for snapshot, planned in past.plans:
        _check_no_place_is_kept_before_an_earlier_request(snapshot, planned)
        _check_every_kept_place_has_one_holder_that_waits(snapshot, planned)


def _check_nobody_is_overtaken(past: Past) -> None:
    """Nobody is overtaken by an equal request submitted 72 hours later.

    Except by a job that passes one that fits nowhere, by a first look, and by a job with a kept place.
    """
    for one in past.starts:
        job, kept = one.start.job, one.start.reservation
        others_wait = any(place.job_id != job.id for place in one.reservations)
        if not one.first_look and not others_wait and (kept is None or kept.job_id == job.id):
            with_it = {other.start.job.id for other in past.starts if other.at == one.at}
            # A job that was stopped for a first look comes back to a place that is another's by then.
            line = [other for other in one.line if one.kept_since is None or one.at - other.waited_us <= one.kept_since]
            assert _earlier(job, line) <= with_it


def _check_no_place_is_kept_before_an_earlier_request(snapshot: Snapshot, planned: Plan) -> None:
    """No place is kept for a request before an equal one that was submitted 72 hours earlier."""
    line = {job.id: job for job in snapshot.line}
    before = {one.job_id for one in snapshot.reservations}
    served = {start.job.id for start in planned.starts} | {one.job_id for one in planned.reservations}
    served |= {one.job_id for one in snapshot.displacements}
    for one in planned.reservations:
        if one.job_id not in before:
            assert _earlier(line[one.job_id], snapshot.line) <= served


def _check_every_kept_place_has_one_holder_that_waits(snapshot: Snapshot, planned: Plan) -> None:
    waiting = {job.id: job for job in snapshot.line}
    jobs = [one.job_id for one in planned.reservations]
    assert len({one.place for one in planned.reservations}) == len(jobs) == len({*jobs})
    assert {*jobs} <= waiting.keys()
    assert all(one.owner == waiting[one.job_id].owner for one in planned.reservations)
    assert all(one.due <= one.bound for one in planned.reservations)


def _earlier(job: Waiting, line: Sequence[Waiting]) -> set[str]:
    """Returns the jobs of the line with an equal request that were submitted so long before that none may overtake."""
    return {other.id for other in line if other.request == job.request and other.submitted + _MOST_US <= job.submitted}
