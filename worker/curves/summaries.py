"""Reads the scalars of one event of TensorBoard: `Event` and `Summary` of its event.proto and summary.proto.

A scalar is a `simple_value`, or a tensor of one number. Images, histograms, texts and graphs are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
import math
import struct

from worker.curves.wire import BYTES, FIXED32, FIXED64, VARINT, Field, fields, signed, unpack, varint

_FLOAT, _DOUBLE, _INT32, _INT64, _HALF = 1, 2, 3, 9, 19
_FORMS = {_FLOAT: "f", _DOUBLE: "d", _INT32: "i", _INT64: "q", _HALF: "e"}
_VALUES = {_FLOAT: 5, _DOUBLE: 6, _INT32: 7, _INT64: 10, _HALF: 13}
"""By type of a tensor: the field of TensorProto that holds its numbers, if `tensor_content` does not."""
_PLUGINS = frozenset({b"", b"scalars"})


@dataclass
class Event:
    """The scalars that were written at one step."""

    time: float = 0.0
    """Seconds since the epoch, by the writer's clock."""
    step: int = 0
    values: list[tuple[bytes, float]] = field(default_factory=list[tuple[bytes, float]])
    """Tags as they are written, each with its value."""


def parse(record: bytes) -> Event:
    """Parses an event. Raises ValueError if it is malformed."""
    event = Event()
    for item in fields(record):
        match item.number, item.kind:
            case 1, 1:
                event.time = unpack("d", item.content)
            case 2, 0:
                event.step = signed(item.value)
            case 5, 2:
                event.values += _scalars(item.content)
            case _:
                pass
    return event


def _scalars(summary: bytes) -> Iterator[tuple[bytes, float]]:
    for item in fields(summary):
        if item.number == 1 and item.kind == BYTES:
            tag, value = _scalar(item.content)
            if value is not None:
                yield tag, value


def _scalar(written: bytes) -> tuple[bytes, float | None]:
    """Returns a tag and its value, or None if it is not a scalar."""
    tag, plugin, value = b"", b"", None
    for item in fields(written):
        match item.number, item.kind:
            case 1, 2:
                tag = item.content
            case 2, 5:
                value = unpack("f", item.content)
            case 8, 2:
                value = _of_tensor(item.content)
            case 9, 2:
                plugin = _plugin(item.content)
            case _:
                pass
    return tag, value if plugin in _PLUGINS else None


def _plugin(metadata: bytes) -> bytes:
    """Returns the name in SummaryMetadata: which of TensorBoard's pages shows the value."""
    for data in fields(metadata):
        if data.number == 1 and data.kind == BYTES:
            return next((item.content for item in fields(data.content) if item.number == 1), b"")
    return b""


def _of_tensor(tensor: bytes) -> float | None:
    """Returns the one number of a tensor. None if it has another shape or type."""
    parts = list(fields(tensor))
    kind = next((item.value for item in parts if (item.number, item.kind) == (1, VARINT)), 0)
    if kind not in _FORMS or not all(_is_single(item.content) for item in parts if item.number == 2):
        return None
    for item in parts:
        if (item.number, item.kind) == (4, BYTES) and item.content:
            return _only(_FORMS[kind], item.content)
        if item.number == _VALUES[kind]:
            return _listed(kind, item)
    return None


def _is_single(shape: bytes) -> bool:
    """Returns whether each dimension of a TensorShapeProto is 1, or there is none."""
    sizes = (item for dim in fields(shape) if dim.number == 2 for item in fields(dim.content) if item.number == 1)
    return all(item.value == 1 for item in sizes)


def _listed(kind: int, item: Field) -> float | None:
    """Returns the number in a field of numbers, packed or not."""
    if kind in {_FLOAT, _DOUBLE}:
        return _only(_FORMS[kind], item.content) if item.kind in {BYTES, FIXED32, FIXED64} else None
    value, end = (item.value, 0) if item.kind == VARINT else varint(item.content, 0)
    if end != len(item.content):
        return None
    return unpack("e", struct.pack("<H", value & 0xFFFF)) if kind == _HALF else float(signed(value))


def _only(form: str, content: bytes) -> float | None:
    return unpack(form, content) if len(content) == struct.calcsize(f"<{form}") else None


def microseconds(seconds: float, *, last: int) -> int:
    """Returns a time in microseconds, from 0 to `last`. 0 for what is not a number."""
    return round(min(max(seconds * 1e6, 0), last)) if math.isfinite(seconds) else 0
