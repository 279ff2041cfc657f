"""Reads the history of a file of wandb: `wandb/offline-run-*/run-*.wandb`, which it writes offline and online alike.

The file is a log of LevelDB (github.com/google/leveldb, doc/log_format.md) with three changes of wandb
(github.com/wandb/wandb, core/pkg/leveldb): it begins with 7 bytes of its own, which count in the first block, and the
checksum is the CRC32 of zlib, of the type and the data. A record is a `Record` of wandb's wandb_internal.proto, whose
field 2 is the history: field 1 its items, each with a key (1 or 2) and a value as JSON (16), field 2 the step.
"""

from dataclasses import dataclass, field
import json
import math
import struct
import zlib

from torchyard.contract.attempts.events import LAST_TIME_US
from worker.curves.parsed import DAMAGED, LARGE, LAST_STEP, MALFORMED, STEP, Notice, Parsed, Part, Point
from worker.curves.summaries import microseconds
from worker.curves.wire import BYTES, VARINT, fields, signed

_BLOCK = 1 << 15
_HEADER = struct.Struct("<IHB")
_MAGIC = b":W&B"
_START = 7
"""Bytes at the start of the file: a magic number and a version."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECORD_HISTORY = 2
_ITEM, _STEP = 1, 2
_LONGEST_NUMBER = 400


def parse(part: Part) -> Parsed:
    """Returns the points in a part of the file, which begins at a record. A record that is unfinished waits."""
    parsed = Parsed(part.offset)
    if not part.offset and len(part.data) >= _START and not part.data.startswith(_MAGIC):
        parsed.notices.append(Notice(DAMAGED))
        return parsed
    for content in _records(part, parsed):
        try:
            parsed.points += _points(content, parsed)
        except ValueError as error:
            parsed.notices.append(Notice(MALFORMED, str(error)))
    return parsed


@dataclass
class _Joined:
    """The fragments of a record that spans blocks. `start`: where it begins."""

    start: int
    data: list[bytes] = field(default_factory=list[bytes])


def _records(part: Part, parsed: Parsed) -> list[bytes]:
    """Returns the whole records, and moves the offset behind the last. A damaged block is left out from there on."""
    data, begin, position = part.data, part.offset, max(part.offset, _START)
    records: list[bytes] = []
    joined: _Joined | None = None
    while True:
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:
            position += left
            continue
        at = position - begin
        if at + _HEADER.size > len(data):
            break
        checksum, length, kind = _HEADER.unpack_from(data, at)
        content = data[at + _HEADER.size : at + _HEADER.size + length]
        fits = _FULL <= kind <= _LAST and length <= left - _HEADER.size
        if fits and len(content) < length:
            break
        if not fits or zlib.crc32(content, zlib.crc32(bytes([kind]))) != checksum:
            if position + left > part.size:
                break  # it may be written just now
            parsed.notices.append(Notice(MALFORMED, "a block of it is damaged"))
            position, joined = position + left, None
            parsed.offset = position
            continue
        if kind in {_FULL, _FIRST}:
            joined = _Joined(position)
        if joined is not None:
            joined.data.append(content)
        position += _HEADER.size + length
        if kind in {_FULL, _LAST}:
            if joined is not None:
                records.append(b"".join(joined.data))
            joined = None
        parsed.offset = position if joined is None else joined.start
    if joined is not None and joined.start == begin and len(data) < part.size - begin:
        parsed.notices.append(Notice(LARGE))  # it fills the part: what is left of it has no beginning, and is left out
        parsed.offset = position
    return records


def _points(record: bytes, parsed: Parsed) -> list[Point]:
    """Returns the numbers of a record of the history. Raises ValueError if it is malformed."""
    points: list[Point] = []
    for item in fields(record):
        if (item.number, item.kind) == (_RECORD_HISTORY, BYTES):
            points += _history(item.content, parsed)
    return points


def _history(written: bytes, parsed: Parsed) -> list[Point]:
    values: dict[str, float] = {}
    step: int | None = None
    for item in fields(written):
        if (item.number, item.kind) == (_ITEM, BYTES):
            key, value = _item(item.content)
            if value is not None:
                values[key] = value
        elif (item.number, item.kind) == (_STEP, BYTES):
            step = next((signed(one.value) for one in fields(item.content) if (one.number, one.kind) == (1, VARINT)), 0)
    if step is None:
        counted = values.get("_step", -1.0)
        step = int(counted) if 0 <= counted <= LAST_STEP else -1
    if not 0 <= step <= LAST_STEP:
        parsed.notices.append(Notice(STEP, str(step)))
        return []
    time = microseconds(values.get("_timestamp", 0.0), last=LAST_TIME_US)
    return [Point(key, step, value, time) for key, value in values.items() if not key.startswith("_")]


def _item(written: bytes) -> tuple[str, float | None]:
    """Returns the key and the number of an item. The number is None for a picture, a text, a table or a truth value."""
    key, nested, value = b"", list[bytes](), b""
    for item in fields(written):
        match item.number, item.kind:
            case 1, 2:
                key = item.content
            case 2, 2:
                nested.append(item.content)
            case 16, 2:
                value = item.content
            case _:
                pass
    name = (b".".join(nested) or key).decode("utf-8", "surrogateescape")
    return name, _number(value)


def _number(written: bytes) -> float | None:
    if len(written) > _LONGEST_NUMBER or written[:1] not in b'-0123456789NI"':
        return None
    try:
        value = json.loads(written)
    except ValueError:
        return None
    if value in {"NaN", "Infinity", "-Infinity"}:  # as newer versions write what JSON has no number for
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
