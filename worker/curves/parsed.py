"""What is asked about parts of files with curves, a line of JSON and the parts, and what is answered, as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
import json
from typing import Any, NamedTuple

from torchyard.contract.attempts.events import LAST_TIME_US

LAST_STEP = 2**63 - 1
MOST_RECORD = (1 << 18) - 64
"""Bytes of the largest record of an event file or of wandb that is read."""


class Point(NamedTuple):
    """`tag`: as it is written; surrogates where it is no text. `time`: in microseconds since the epoch."""

    tag: str
    step: int
    value: float
    time: int


class Notice(NamedTuple):
    """What is wrong with a part, to be said once. `detail`: begins with what the file has, and may be empty."""

    topic: str
    detail: str = ""


LARGE, MALFORMED, STEP, SHORTER, DAMAGED = "large", "malformed", "step", "shorter", "damaged"
_TOPICS = frozenset({LARGE, MALFORMED, STEP, SHORTER, DAMAGED})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a file. `data` begins at `offset`, or is all of a database, whose rows behind `offset` are wanted."""

    kind: str
    offset: int
    size: int
    """Of the file."""
    data: bytes = b""
    metric: str = ""
    """Of MLflow's file of one metric."""
    since_ms: int = 0
    """Rows of a database that are older are left out."""


@dataclass
class Parsed:
    """The result of parsing a part. `offset`: where the next part begins."""

    offset: int
    points: list[Point] = field(default_factory=list[Point])
    notices: list[Notice] = field(default_factory=list[Notice])
    more: bool = False
    """Whether the same part has more, which does not fit one answer."""


def question_of(parts: Sequence[Part]) -> bytes:
    heads = [{**asdict(part), "data": len(part.data)} for part in parts]
    return b"\n".join([json.dumps(heads).encode(), b"".join(part.data for part in parts)])


def parts_of(question: bytes) -> list[Part]:
    position = question.index(b"\n") + 1
    heads: list[dict[str, Any]] = json.loads(question[:position])
    parts_read: list[Part] = []
    for head in heads:
        size: int = head.pop("data")
        parts_read.append(Part(data=question[position : position + size], **head))
        position += size
    return parts_read


def answer_of(parts_read: Sequence[Parsed]) -> bytes:
    return json.dumps([[one.offset, one.points, one.notices, one.more] for one in parts_read]).encode()


def parsed_of(answer: bytes, parts: Sequence[Part]) -> list[Parsed]:
    """Returns what is known of each part. Raises ValueError if the answer is none: who answers read hostile bytes."""
    try:
        rows = json.loads(answer)
        parsed = [_parsed(*row, part=part) for row, part in zip(rows, parts, strict=True)]
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return parsed


def _parsed(offset: Any, points: Any, notices: Any, more: Any, *, part: Part) -> Parsed:
    last = LAST_STEP if part.kind == "database" else part.size
    if type(offset) is not int or not (0 <= offset <= last):
        raise ValueError("it has an impossible offset")
    return Parsed(offset, [_point(*each) for each in points], [_parse_notice(*each) for each in notices], more is True)


def _point(tag: Any, step: Any, value: Any, time: Any) -> Point:
    # Each kind exactly: a bool is an int.
    if type(tag) is not str or type(step) is not int or type(value) is not float or type(time) is not int:
        raise ValueError("it has an impossible point")
    if not (0 <= step <= LAST_STEP and 0 <= time <= LAST_TIME_US):
        raise ValueError("it has an impossible step or time")
    return Point(tag, step, value, time)


def _parse_notice(topic: Any, detail: Any) -> Notice:
    if topic not in _TOPICS or type(detail) is not str:
        raise ValueError("it tells something impossible")
    return Notice(topic, detail)
