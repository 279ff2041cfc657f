"""Writes event files as TensorBoard does, and wrong ones."""

from pathlib import Path
import struct

from worker.curves.tfrecords import masked_crc

NAME = "events.out.tfevents.1700000000.host.1.0"


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    checksum = struct.pack("<I", masked_crc(content))
    return length + struct.pack("<I", masked_crc(length)) + content + checksum


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def nested(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step: int, *values: bytes, time: float = 1.5) -> bytes:
    summary = b"".join(nested(1, value) for value in values)
    return b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + nested(5, summary)


def simple(tag: str | bytes, value: float) -> bytes:
    return nested(1, tag.encode() if isinstance(tag, str) else tag) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, kind: int, numbers: bytes, *, dims: tuple[int, ...] = (), plugin: bytes = b"scalars") -> bytes:
    """`numbers`: the field of TensorProto that holds them."""
    shape = b"".join(nested(2, b"\x08" + varint(dim)) for dim in dims)
    content = b"\x08" + varint(kind) + nested(2, shape) + numbers
    return nested(1, tag.encode()) + nested(8, content) + nested(9, nested(1, nested(1, plugin)))


def scalars(tag: str, values: dict[int, float]) -> bytes:
    return b"".join(record(event(step, simple(tag, value))) for step, value in values.items())


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
