"""The garbage collector rests while a program is loaded."""

import gc

import pytest

from torchyard.host.collector import look_rarely, paused


def test_it_rests_and_goes_on_also_after_an_error() -> None:
    frozen = gc.get_freeze_count()
    with pytest.raises(ImportError), paused():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen


def test_it_rests_on_where_it_rested_already() -> None:
    with paused():
        with paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_looks_at_old_objects_a_tenth_as_often() -> None:
    before = gc.get_threshold()
    try:
        look_rarely()
        assert gc.get_threshold() == (*before[:2], 10 * before[2])
    finally:
        gc.set_threshold(*before)
