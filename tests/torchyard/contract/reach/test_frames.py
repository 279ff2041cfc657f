from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.reach.frames import LONGEST, BadFrame, Frame, FrameReader, Kind, with_number

FRAMES = st.builds(Frame, st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=300))


@given(st.lists(FRAMES, max_size=8), st.integers(1, 40))
def test_frames_are_read_however_the_stream_is_cut(frames: list[Frame], size: int) -> None:
    stream, reader = b"".join(frame.encode() for frame in frames), FrameReader()
    parts = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [frame for part in parts for frame in reader.feed(part)] == frames


def test_a_frame_that_is_too_long_is_refused_before_it_has_come() -> None:
    header = Frame(Kind.DATA, 0, bytes(LONGEST)).encode()[:5] + (LONGEST + 1).to_bytes(4, "big")
    with pytest.raises(BadFrame, match="65537 bytes"):
        list(FrameReader().feed(header))


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadFrame, match="kind 200"):
        list(FrameReader().feed(bytes([200, *bytes(8)])))


def test_numbers_are_those_that_were_sent() -> None:
    assert with_number(Kind.EXIT, -9).number == -9
    assert with_number(Kind.ACK, 2**40, channel=3).number == 2**40
    for wrong in (Frame(Kind.ACK, 0, b"12"), Frame(Kind.DATA, 0, bytes(8))):
        with pytest.raises(BadFrame):
            _ = wrong.number
