"""Remembers the files with curves that were there before an attempt started.

Those that came with the code are recognized by their content: one that was copied, renamed or touched is still one of
them, and one that was replaced or written anew is not. Of those that an earlier attempt of the job has written, the
next one reads on where that has left off.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Self

from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import DataError
from torchyard.contract.wire.codec import Record
from torchyard.host.recordfiles import read_record, write_record
from torchyard.host.untrusted import open_inside
from worker.curves import finding
from worker.curves.kinds import KINDS, kind_of
from worker.host import rundirs
from worker.host.looks import Parts

_SOURCES = frozenset(kind.source for kind in KINDS.values())
_HEAD = 32
"""Bytes at the start of a file that name it: they have the time of its first event, of the microsecond."""
_TAIL = 4096
"""Bytes at its end that are compared besides."""
MOST_ALIKE = 8
"""Endings that are remembered of files with the same first bytes: with each of them a file is compared."""


@dataclass(frozen=True, kw_only=True)
class Ending(Record):
    """Where such a file ended, and the digest of its last bytes."""

    size: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Brought(Record):
    """The files with curves of one moment."""

    endings: dict[str, list[Ending]] = field(default_factory=dict[str, list[Ending]])
    """Of those that came with the code, by the first bytes in hexadecimal."""
    offsets: dict[str, int] = field(default_factory=dict[str, int])
    """Of those that earlier attempts wrote: the bytes or rows that are stored of each, by `name_of` its path."""

    @classmethod
    def found_in(cls, root: Path, *, check: Callable[[], object] = lambda: None) -> Self:
        """Returns the endings of those below `root`. `check`: called before each. Raises OSError and what it raises."""
        endings: dict[str, list[Ending]] = {}
        for parts in finding.find(root, skipped=()):
            check()
            file = None if kind_of(parts).is_database else _opened(root, parts)
            if file is None:
                continue
            with file:
                size = os.fstat(file.fileno()).st_size
                alike = endings.setdefault(_head(file), []) if size else []
                if size and len(alike) < MOST_ALIKE and (ending := _ending(file, size)) not in alike:
                    alike.append(ending)
        return cls(endings=endings)

    @classmethod
    def of(cls, run: RunDir) -> Self:
        """Returns those of the attempt, none if nobody has looked. Raises OSError."""
        return read_record(run.brought, cls) or cls()

    def end_in(self, file: BinaryIO) -> int:
        """Returns how many bytes at the start of a file were there before: all that is behind them is new."""
        size = os.fstat(file.fileno()).st_size
        head = _head(file)  # a file of fewer bytes had less of it
        known = [one for end in range(2, len(head) + 1, 2) for one in self.endings.get(head[:end], [])]
        sizes = {one.size for one in known if one.size <= size and one.digest == _digest(file, one.size)}
        return max(sizes, default=0)


def remember(run: RunDir, *, read: Mapping[str, int], check: Callable[[], object] = lambda: None) -> None:
    """Writes how far the files with curves were read that are there before the attempt starts.

    `read`: the bytes or rows of each that earlier attempts have stored, by `name_of` its path. Raises OSError, and what
    `check` raises.
    """
    came = read_record(run.came, Brought) or Brought()
    root, job = run.root.parent, rundirs.job_path(run)
    offsets: dict[str, int] = {}
    for parts in finding.find(root, job) if read else ():
        check()
        if (name := name_of(parts)) in read and (size := _size(root, finding.located(parts, job))) is not None:
            offsets[name] = min(read[name], size)  # a database has fewer rows than bytes
    write_record(run.brought, Brought(endings=came.endings, offsets=offsets))


def name_of(parts: Parts) -> str:
    """Returns the name of a file among the offsets of an attempt."""
    return f"{kind_of(parts).source}/{hashlib.sha256(os.fsencode('/'.join(parts))).hexdigest()[:16]}"


def source_of(name: str) -> str | None:
    """Returns the source of the metrics in a file of this name; None if the name is that of another file."""
    source = name.partition("/")[0]
    return source if source in _SOURCES and source != name else None


def _size(root: Path, parts: Parts) -> int | None:
    file = _opened(root, parts)
    if file is None:
        return None
    with file:
        return os.fstat(file.fileno()).st_size


def _opened(root: Path, parts: Parts) -> BinaryIO | None:
    try:
        return open_inside(root, *parts)
    except DataError:
        return None  # no such file is read later either


def _head(file: BinaryIO) -> str:
    return os.pread(file.fileno(), _HEAD, 0).hex()


def _ending(file: BinaryIO, size: int) -> Ending:
    return Ending(size=size, digest=_digest(file, size))


def _digest(file: BinaryIO, size: int) -> str:
    begin = max(size - _TAIL, 0)
    return hashlib.sha256(os.pread(file.fileno(), size - begin, begin)).hexdigest()
