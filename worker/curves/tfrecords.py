"""Splits a part of a TFRecord file into its records. Each has its length and two checksums, masked CRC32C."""

from dataclasses import dataclass, field
import struct

import google_crc32c

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_FRAME = _HEADER.size + _CHECKSUM.size
"""Bytes of a record besides its content."""
_MASK_DELTA = 0xA282EAD8


@dataclass
class Part:
    """What one call has found. `offset`: where the next call continues."""

    offset: int
    records: list[bytes] = field(default_factory=list[bytes])
    skipped: int = 0
    """How many records were too large. They are left out, unread."""
    damaged: bool = False
    """Whether the record at `offset` does not match its checksums: what follows cannot be found."""


def split(data: bytes, offset: int, *, file_size: int, limit: int) -> Part:
    """Returns the whole records in `data`, which begins at `offset` of a file. A record that is unfinished waits.

    Leaves out a record of more than `limit` bytes, as soon as the file has all of it.
    """
    part = Part(offset)
    while (header := _header(data, part.offset - offset)) is not None:
        length, checksum = header
        begin = part.offset - offset + _HEADER.size
        if masked_crc(data[begin - _HEADER.size : begin - _CHECKSUM.size]) != checksum:
            part.damaged = True
            return part
        if part.offset + length + _FRAME > file_size:
            return part
        if length > limit:
            part.skipped += 1
            part.offset += length + _FRAME
            continue
        content, end = data[begin : begin + length], data[begin + length : begin + length + _CHECKSUM.size]
        if len(end) < _CHECKSUM.size:
            return part
        if masked_crc(content) != _CHECKSUM.unpack(end)[0]:
            part.damaged = True
            return part
        part.records.append(content)
        part.offset += length + _FRAME
    return part


def masked_crc(data: bytes) -> int:
    """Returns the CRC32C of `data`, rotated and shifted as the format has it."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _header(data: bytes, position: int) -> tuple[int, int] | None:
    """Returns the length of a record and the checksum of this length. None if they are not in `data`."""
    if position + _HEADER.size > len(data):
        return None
    length, checksum = _HEADER.unpack_from(data, position)
    return length, checksum
