"""Reads the fields of a protobuf message, without a schema. Its bytes are untrusted."""

from collections.abc import Iterator
import struct
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_FIXED = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    number: int
    kind: int
    """VARINT, FIXED64, BYTES or FIXED32."""
    content: bytes
    """Empty for a varint."""
    value: int = 0
    """Of a varint, unsigned."""


def fields(message: bytes) -> Iterator[Field]:
    """Yields the fields of a message. Raises ValueError where it is malformed."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, position = varint(message, position)
            yield Field(number, kind, b"", value)
            continue
        if kind == BYTES:
            size, position = varint(message, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"a field has the unknown type {kind}")
        if position + size > len(message):
            raise ValueError("a field is longer than its message")
        yield Field(number, kind, message[position : position + size])
        position += size


def varint(message: bytes, position: int) -> tuple[int, int]:
    """Returns the number at `position`, 64 bits at most, and where it ends. Raises ValueError."""
    value = 0
    for count, byte in enumerate(message[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + count + 1
    raise ValueError("a number has no end")


def signed(value: int) -> int:
    """Returns a varint as the int64 that it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def unpack(form: str, content: bytes) -> float:
    """Returns the one number in `content`, as `struct` has it. Raises ValueError."""
    try:
        return float(struct.unpack(f"<{form}", content)[0])
    except struct.error as error:
        raise ValueError(f"a number cannot be read: {error}") from None
