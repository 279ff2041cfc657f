"""The garbage collector rests while a program is loaded."""

import gc

import pytest

from torchyard.host.collector import paused


def test_it_rests_and_goes_on_also_after_an_error() -> None:
    try:
        with pytest.raises(ImportError), paused():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
