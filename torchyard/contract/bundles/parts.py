"""The parts of a bundle's tar, by which a changed file does not send the rest of its bundle again.

A part has whole files, or a piece of a large one. Where parts end follows from names and sizes alone, so a file that
is changed, added or removed changes the parts beside it and no others.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
import hashlib
from itertools import islice
import struct
from typing import Any
import zlib

MOST_PART_BYTES = 4 << 20
MOST_PARTS_ASKED = 2048
"""Parts of one question which of them are stored."""
LEAST_SHARED_BYTES = 1 << 20
"""Bundles of fewer bytes are sent whole: asking costs more."""

_MEAN_BYTES = 1 << 20
_LEAST_BYTES = 1 << 16
_STORED = struct.Struct(">32sI")


@dataclass(frozen=True)
class Part:
    """The sha256 of some of a tar's bytes, and how many they are."""

    sha256: bytes
    size: int


class PartsReader:
    """Finds the parts of a tar whose bytes are given in order."""

    def __init__(self) -> None:
        self._parts = bytearray()
        self._digest: Any = hashlib.sha256()
        self._size = 0
        """Bytes of the part that is not whole yet."""
        self._ahead: list[bytes] = []
        """Bytes of an entry of which nothing is known yet."""
        self._left = 0
        """Bytes of the entry that are still to come, with those in `_ahead`."""
        self._ends = False
        """Whether a part ends with the entry."""

    def entry(self, name: str, size: int) -> None:
        """Tells that an entry of `size` bytes begins, with those that were given since the last one ended."""
        if self._size + size > MOST_PART_BYTES or size >= _MEAN_BYTES:
            self._end()
        likely = min(size / _MEAN_BYTES, 1.0)
        self._ends = zlib.crc32(name.encode()) < likely * 2**32
        self._left = size
        ahead, self._ahead = self._ahead, []
        for data in ahead:
            self.add(data)

    def add(self, data: bytes) -> None:
        """Takes the next bytes of the tar, which end with the entry at the latest."""
        if not self._left:
            self._ahead.append(data)
            return
        self._left -= len(data)
        if self._size + len(data) <= MOST_PART_BYTES:
            self._digest.update(data)
            self._size += len(data)
        else:
            self._add_in_pieces(memoryview(data))
        if not self._left and self._ends and self._size >= _LEAST_BYTES:
            self._end()

    def finish(self) -> bytes:
        """Returns the parts as they are stored. What was given since the last entry is the tar's end."""
        for data in self._ahead:
            self._digest.update(data)
            self._size += len(data)
        self._end()
        return bytes(self._parts)

    def _add_in_pieces(self, data: memoryview) -> None:
        while data:
            piece = data[: MOST_PART_BYTES - self._size]
            self._digest.update(piece)
            self._size += len(piece)
            data = data[len(piece) :]
            if self._size == MOST_PART_BYTES:
                self._end()

    def _end(self) -> None:
        if self._size:
            self._parts += _STORED.pack(self._digest.digest(), self._size)
            self._digest, self._size = hashlib.sha256(), 0


def parts_in(stored: bytes) -> list[Part]:
    """Returns the parts that `PartsReader.finish` has returned."""
    return [Part(sha256, size) for sha256, size in _STORED.iter_unpack(stored)]


def count_parts(stored: bytes) -> int:
    """Returns how many parts these are."""
    return len(stored) // _STORED.size


@dataclass(frozen=True)
class Shared:
    """Bytes of a tar, from `at`, which the bundle `source` of the same owner has from `start`."""

    at: int
    source: str
    start: int
    size: int


@dataclass(frozen=True)
class SharedParts:
    """Consecutive parts of a new tar that a complete bundle of yours also has in this order."""

    index: int
    """The first of them, among those that were asked for."""
    count: int
    source: str
    """The sha256 of that bundle."""
    start: int
    """The byte of its tar with which they begin."""
    size: int
    """Their bytes."""


def shared_parts(wanted: Sequence[bytes], stored: Iterable[tuple[str, bytes]]) -> list[SharedParts]:
    """Returns which of the `wanted` parts, by their sha256, are among those of the `stored` bundles, by theirs."""
    index = _Index(set(wanted))
    for source, packed in stored:
        index.add(source, packed)
    found: list[SharedParts] = []
    at = 0
    while at < len(wanted):
        run = index.run(wanted, at)
        if run is not None:
            found.append(run)
        at += 1 if run is None else run.count
    return found


class _Index:
    """Where parts are that are wanted."""

    def __init__(self, wanted: set[bytes]) -> None:
        self._wanted = wanted
        self._bundles: list[tuple[str, list[bytes], array[int]]] = []
        """Per bundle: its digest, the digests of its parts, the offset of each in its tar, and the tar's end."""
        self._places: dict[bytes, tuple[int, int]] = {}

    def add(self, source: str, packed: bytes) -> None:
        digests: list[bytes] = []
        offsets, offset = array("Q", (0,)), 0
        for index, (digest, size) in enumerate(_STORED.iter_unpack(packed)):
            digests.append(digest)
            offset += size
            offsets.append(offset)
            if digest in self._wanted:
                self._places.setdefault(digest, (len(self._bundles), index))
        self._bundles.append((source, digests, offsets))

    def run(self, wanted: Sequence[bytes], at: int) -> SharedParts | None:
        """Returns the wanted parts from `at` that follow each other in one bundle."""
        place = self._places.get(wanted[at])
        if place is None:
            return None
        number, first = place
        source, digests, offsets = self._bundles[number]
        count = 0
        for found, digest in zip(islice(digests, first, None), islice(wanted, at, None), strict=False):
            if found != digest:
                break
            count += 1
        return SharedParts(at, count, source, offsets[first], offsets[first + count] - offsets[first])
