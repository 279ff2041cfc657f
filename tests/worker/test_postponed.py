"""When the work is due that passes postpone."""

from worker.placement.postponed import Postponed


def test_what_is_postponed_is_due_when_no_job_starts() -> None:
    postponed = Postponed()
    assert (postponed.pending, postponed.is_due(10.0)) == (False, False)
    for now in (10.0, 10.09, 10.18):
        assert postponed.may_postpone(now)
        assert not postponed.is_due(now)
        postponed.note_postponed(now)
    assert (postponed.pending, postponed.is_due(10.2), postponed.is_due(10.3)) == (True, False, True)
    postponed.note_done()
    assert (postponed.pending, postponed.is_due(99.0)) == (False, False)


def test_passes_that_start_jobs_all_the_time_postpone_it_for_half_a_second_at_most() -> None:
    postponed = Postponed()
    times: list[float] = []
    for now in (hundredths / 100 for hundredths in range(1000, 1200, 8)):
        if postponed.may_postpone(now):
            postponed.note_postponed(now)
            times.append(now)
    assert 0.4 < times[-1] - times[0] < 0.5
    postponed.note_done()
    assert postponed.may_postpone(12.0)
