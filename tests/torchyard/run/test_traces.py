"""What is recorded of a traceback: lines of the user's program, and none of ours."""

from collections.abc import Callable
from pathlib import Path

import pytest

from api.advice.output import last_frame
from torchyard.contract.wire.codec import parse_object
from torchyard.run.traces import traceback_of


def caused() -> None:
    """Raises an error of a program that was caused by one of ours."""
    try:
        parse_object(b"[]")
    except ValueError as error:
        raise RuntimeError("no config") from error


def grouped() -> None:
    raise ExceptionGroup("two", [raised(lambda: parse_object(b"[]")), raised(caused)])


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("call", [lambda: parse_object(b"{"), caused, grouped])
def test_no_line_of_ours_is_in_the_traceback_of_a_script(call: Callable[[], object]) -> None:
    error = raised(call)
    assert "codec.py" in traceback_of(error, own_frames=True)
    shown = traceback_of(error, own_frames=False)
    assert "codec.py" not in shown and Path(__file__).name in shown
    assert shown.rstrip().splitlines()[-1] == traceback_of(error, own_frames=True).rstrip().splitlines()[-1]
    if call is not grouped:
        frame = last_frame(shown)
        assert frame is not None and frame.file == Path(__file__).name


def test_an_error_that_no_line_of_the_script_raised_blames_none() -> None:
    error = raised(lambda: parse_object(b"[]"))
    while error.__traceback__ is not None and "codec.py" not in error.__traceback__.tb_frame.f_code.co_filename:
        error.__traceback__ = error.__traceback__.tb_next
    assert last_frame(traceback_of(error, own_frames=True)) is not None
    assert last_frame(traceback_of(error, own_frames=False)) is None
