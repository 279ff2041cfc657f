"""The bytes of an upload: what is missing of a bundle, compressed as it is read."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from backports.zstd import ZstdCompressor

from torchyard.contract.bundles.names import FREE_BYTES, is_compressed_too_much
from torchyard.contract.bundles.parts import Shared, SharedParts, parts_in

MOST_COPIES = 64
"""Pieces of a tar that the service copies from other bundles: each is a request. The largest are."""
LEAST_COPIED_BYTES = 1 << 16
_FREE_BYTES = FREE_BYTES // 2  # the service may see less of the stream than was sent of it

OnUpload = Callable[[int, int], None]
"""Called with the bytes of the bundle that were sent so far and their total; first with those that had arrived."""


Encode = Callable[..., Generator[bytes]]
"""`compressed` or `plain`."""


class Packed(Protocol):
    """The tar of a bundle. `read` yields bytes of it, and raises what reading its files raises."""

    @property
    def sha256(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def parts(self) -> bytes: ...
    def read(self, start: int = 0, end: int | None = None) -> Generator[bytes]: ...


@dataclass(frozen=True)
class Step:
    """The next bytes of a tar, up to `end`: the service has them from `start` of the bundle `source`, or none has."""

    end: int
    source: str | None = None
    start: int = 0


class Steps:
    """Which bytes of a tar need not be sent."""

    def __init__(self, packed: Packed, found: Sequence[SharedParts] = ()) -> None:
        """`found`: what the service has. Raises nothing: what does not fit to the tar is sent."""
        self._size = packed.size
        parts = parts_in(packed.parts)
        offsets = [0, *accumulate(part.size for part in parts)]
        runs = [
            Shared(offsets[run.index], run.source, run.start, run.size)
            for run in found
            if run.index + run.count <= len(parts)
            and offsets[run.index + run.count] - offsets[run.index] == run.size >= LEAST_COPIED_BYTES
        ]
        largest = sorted(runs, key=lambda run: -run.size)[:MOST_COPIES]
        self._runs = sorted(largest, key=lambda run: run.at)

    def at(self, offset: int) -> Step:
        """Returns what to do from this byte on."""
        for run in self._runs:
            if run.at <= offset < run.at + run.size:
                return Step(run.at + run.size, run.source, run.start + offset - run.at)
            if offset < run.at:
                return Step(run.at)
        return Step(self._size)


def compressed(packed: Packed, start: int, end: int, *, on_bytes: Callable[[int], None]) -> Generator[bytes]:
    """Yields the bytes from `start` to `end` as one zstd stream, of which each item can be decoded.

    Ends early where the bytes become so small that the service would refuse them: the rest must be sent `plain`.
    `on_bytes` is called with the byte of the tar to which it has come. Raises what reading raises.
    """
    compressor = ZstdCompressor()
    sent = decoded = 0
    for chunk in plain(packed, start, end, on_bytes=on_bytes):
        item = compressor.compress(chunk, mode=ZstdCompressor.FLUSH_BLOCK)
        sent, decoded = sent + len(item), decoded + len(chunk)
        if is_compressed_too_much(sent=sent, decoded=decoded, free=_FREE_BYTES):
            return
        yield item
    yield compressor.flush()


def plain(packed: Packed, start: int, end: int, *, on_bytes: Callable[[int], None]) -> Generator[bytes]:
    """Yields the bytes from `start` to `end`. Raises what reading raises."""
    at = start
    for chunk in packed.read(start, end):
        yield chunk
        at += len(chunk)
        on_bytes(at)
