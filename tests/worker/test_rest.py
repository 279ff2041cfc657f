"""When the part of a pass is due that starts no job."""

from worker.placement.rest import Rest


def test_what_passes_leave_is_due_once_nothing_starts() -> None:
    rest = Rest()
    assert (rest.left, rest.is_due(10.0)) == (False, False)
    for now in (10.0, 10.09, 10.18):
        assert rest.may_be_left(now)
        assert not rest.is_due(now)
        rest.note_left(now)
    assert (rest.left, rest.is_due(10.2), rest.is_due(10.3)) == (True, False, True)
    rest.note_done()
    assert (rest.left, rest.is_due(99.0)) == (False, False)


def test_passes_that_claim_all_the_time_leave_it_for_half_a_second_at_most() -> None:
    rest = Rest()
    left = [now / 100 for now in range(1000, 1200, 8) if rest.may_be_left(now / 100) and not rest.note_left(now / 100)]
    assert 0.4 < left[-1] - left[0] < 0.5
    rest.note_done()
    assert rest.may_be_left(12.0)
