"""The cases of reaches that the programs share with the page: web/src/reach/cases.test.ts reads them, too."""

from collections.abc import Callable, Sequence
import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.contract.reach.channels import Incoming, Outgoing
from torchyard.contract.reach.frames import BadFrame, Frame, FrameReader, Kind, with_number
from torchyard.contract.reach.proof import Side, prove

CASES: dict[str, Any] = json.loads((Path(__file__).parents[3] / "reach_cases.json").read_text())
SIDES: tuple[Side, ...] = ("client", "service")


def pattern(start: int, length: int) -> bytes:
    """Returns bytes of a stream from which it can be told where they stand in it."""
    return bytes(number % 251 for number in range(start, start + length))


def test_frames_are_encoded_as_the_page_encodes_them() -> None:
    for case in CASES["frames"]:
        kind, encoded = Kind[case["kind"]], bytes.fromhex(case["encoded"])
        if "number" in case:
            frame = with_number(kind, case["number"], channel=case["channel"])
            assert frame.number == case["number"]
        else:
            frame = Frame(kind, case["channel"], bytes.fromhex(case["content"]))
        assert frame.encode() == encoded, case
        assert [*FrameReader().feed(encoded)] == [frame]


def test_what_the_page_takes_for_no_frame_is_none() -> None:
    for encoded in CASES["bad_frames"]:
        with pytest.raises(BadFrame):
            list(FrameReader().feed(bytes.fromhex(encoded)))
    for kind, content in CASES["bad_numbers"]:
        with pytest.raises(BadFrame):
            _ = Frame(Kind[kind], 0, bytes.fromhex(content)).number


@pytest.mark.parametrize("name", CASES["outgoing"])
def test_bytes_are_sent_as_the_page_sends_them(name: str) -> None:
    outgoing, put = Outgoing(3), 0
    for what, *rest in CASES["outgoing"][name]:
        match what:
            case "put":
                outgoing.put(pattern(put, rest[0]))
                put += rest[0]
            case "refused put":
                with pytest.raises(ValueError, match="more than"):
                    outgoing.put(bytes(rest[0]))
            case "frames":
                assert [_sent(frame) for frame in outgoing.frames()] == [_expected(each) for each in rest[0]]
            case "room":
                assert outgoing.room == rest[0]
            case _:
                _step(what, rest, {"end": outgoing.end, "acknowledge": outgoing.acknowledge, "resume": outgoing.resume})


@pytest.mark.parametrize("name", CASES["incoming"])
def test_bytes_are_taken_as_the_page_takes_them(name: str) -> None:
    incoming = Incoming(3)
    for what, *rest in CASES["incoming"][name]:
        match what:
            case "passed on":
                frame = incoming.passed_on(rest[0])
                assert (frame and frame.number) == rest[1]
            case "resume":
                assert incoming.resume() == with_number(Kind.ACK, rest[0], channel=3)
            case _:
                _step(what, [bytes(count) for count in rest], {"end": incoming.end, "take": incoming.take})


def test_a_proof_is_the_one_that_the_page_makes() -> None:
    case = CASES["proof"]
    named = {name: case[name] for name in ("reach", "meeting", "service_nonce", "end_nonce")}
    for side in SIDES:
        assert prove(bytes.fromhex(case["secret"]), side=side, **named) == case[side]


def _step(what: str, arguments: Sequence[Any], known: dict[str, Callable[..., Any]]) -> None:
    if what.startswith("refused "):
        with pytest.raises(BadFrame):
            known[what.removeprefix("refused ")](*arguments)
    else:
        known[what](*arguments)


def _sent(frame: Frame) -> tuple[Kind, int, bytes]:
    return frame.kind, frame.channel, frame.content


def _expected(case: Sequence[Any]) -> tuple[Kind, int, bytes]:
    kind, start, length = case
    return Kind[kind], 3, pattern(start, length)
