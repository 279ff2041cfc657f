"""Says of a file whether it is whole, as far as its own bytes tell.

A zip, which is what `torch.save` and `numpy.savez` write, ends with a record that says where the directory of its
files lies. `torch.distributed.checkpoint` writes zips one after the other into a file: the last one tells. A
safetensors file says in its header how long it is. Of other formats the bytes tell nothing.
"""

import json
import os
import re
import struct
from typing import BinaryIO

_ZIP, _EMPTY_ZIP = b"PK\x03\x04", b"PK\x05\x06"
_ENTRY, _END, _END64, _LOCATOR64 = b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_RECORD = struct.Struct("<4s4H2LH")
"""Signature, numbers of disks, counts of entries, size and offset of the directory, length of the comment."""
_LOCATOR64_RECORD = struct.Struct("<4sLQL")
_END64_RECORD = struct.Struct("<4sQ2H2L4Q")
_LONGEST_COMMENT = 0xFFFF
_IN_END64 = 0xFFFFFFFF
"""An offset or a size that stands in the longer record."""
_LONGEST_HEADER, _LONGEST_PARSED = 1 << 25, 1 << 20
"""Bytes of a header that is looked at, and of one that is parsed."""
_OFFSETS = re.compile(rb'"data_offsets":\s?\[\s?[0-9]{1,18},\s?([0-9]{1,18})\s?\]')
_HEADER_LENGTH = struct.Struct("<Q")


def is_whole(file: BinaryIO, name: str) -> bool | None:
    """Returns whether the open file `name` is whole; None if its bytes do not tell. Raises OSError.

    The position of the file stays as it is.
    """
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    if not size:
        return False
    if name.lower().endswith(".safetensors"):
        return _is_whole_safetensors(descriptor, size)
    if os.pread(descriptor, 4, 0) in {_ZIP, _EMPTY_ZIP}:
        return _is_whole_zip(descriptor, size)
    return None


def _is_whole_zip(descriptor: int, size: int) -> bool:
    first = max(0, size - _END_RECORD.size - _LONGEST_COMMENT)
    tail = os.pread(descriptor, size - first, first)
    position = tail.rfind(_END)
    while position >= 0:
        if len(tail) - position >= _END_RECORD.size:
            *_, length, start, comment = _END_RECORD.unpack_from(tail, position)
            if position + _END_RECORD.size + comment == len(tail):
                return _has_directory(descriptor, first + position, length=length, start=start)
        position = tail.rfind(_END, 0, position)
    return False


def _has_directory(descriptor: int, end: int, *, length: int, start: int) -> bool:
    """Returns whether the directory is there of which the record at `end` tells, right before it."""
    record = _end64(descriptor, end)
    if record is not None:
        end, length, start = record
    elif _IN_END64 in {length, start}:
        return False
    # What stands before the zip counts in no offset of it.
    return start + length <= end and (not length or os.pread(descriptor, 4, end - length) == _ENTRY)


def _end64(descriptor: int, end: int) -> tuple[int, int, int] | None:
    """Returns the place of the longer record, and what it says of the directory; None if there is none."""
    position = end - _LOCATOR64_RECORD.size
    raw = os.pread(descriptor, _LOCATOR64_RECORD.size, position) if position >= 0 else b""
    if len(raw) < _LOCATOR64_RECORD.size:
        return None
    end64 = position - _END64_RECORD.size
    if _LOCATOR64_RECORD.unpack(raw)[0] != _LOCATOR64 or end64 < 0:
        return None
    values = _END64_RECORD.unpack(os.pread(descriptor, _END64_RECORD.size, end64))
    return (end64, values[-2], values[-1]) if values[0] == _END64 else None


def _is_whole_safetensors(descriptor: int, size: int) -> bool:
    if size < _HEADER_LENGTH.size:
        return False
    (length,) = _HEADER_LENGTH.unpack(os.pread(descriptor, _HEADER_LENGTH.size, 0))
    if length > min(_LONGEST_HEADER, size - _HEADER_LENGTH.size):
        return False
    header = os.pread(descriptor, length, _HEADER_LENGTH.size)
    end = _parsed_end(header) if length <= _LONGEST_PARSED else _searched_end(header)
    return end is not None and _HEADER_LENGTH.size + length + end == size


def _parsed_end(header: bytes) -> int | None:
    """Returns where the last tensor ends; None for a header that is none."""
    try:
        entries = json.loads(header)
        ends = [item["data_offsets"][1] for name, item in entries.items() if name != "__metadata__"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return max(ends, default=0) if all(isinstance(end, int) for end in ends) else None


def _searched_end(header: bytes) -> int | None:
    """Does the same for a long header, without parsing it: that takes seconds in which no other thread runs."""
    if b"\0" in header or not header.startswith(b"{") or not header.rstrip(b" ").endswith(b"}"):
        return None
    return max((int(found[1]) for found in _OFFSETS.finditer(header)), default=0)
