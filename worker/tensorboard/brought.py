"""Remembers the event files that were there before an attempt started, such as those that came with its code.

They are recognized by their content: one that was copied, renamed or touched is still one of them, and one that was
replaced or written anew is not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Self

from torchyard.contract.codec import Record
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import RunDir
from torchyard.host.recordfiles import read_record, write_record
from torchyard.host.untrusted import open_inside
from worker.tensorboard import finding
from worker.tensorboard.finding import Parts

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
    """The event files of one moment. `endings`: by the first bytes, in hexadecimal."""

    endings: dict[str, list[Ending]] = field(default_factory=dict[str, list[Ending]])

    @classmethod
    def found_in(cls, job: Path, *, check: Callable[[], object] = lambda: None) -> Self:
        """Returns those that are there now. `check`: called before each. Raises OSError, and what `check` raises."""
        endings: dict[str, list[Ending]] = {}
        for parts in finding.find(job):
            check()
            file = _opened(job, parts)
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
        known = self.endings.get(_head(file), [])
        sizes = {one.size for one in known if one.size <= size and one.digest == _digest(file, one.size)}
        return max(sizes, default=0)


def remember(run: RunDir, *, check: Callable[[], object] = lambda: None) -> None:
    """Writes which event files are there before the attempt starts. `check`, and what is raised: as of `found_in`."""
    write_record(run.brought, Brought.found_in(run.job, check=check))


def _opened(job: Path, parts: Parts) -> BinaryIO | None:
    try:
        return open_inside(job, *parts)
    except DataError:
        return None  # no such file is read later either


def _head(file: BinaryIO) -> str:
    return os.pread(file.fileno(), _HEAD, 0).hex()


def _ending(file: BinaryIO, size: int) -> Ending:
    return Ending(size=size, digest=_digest(file, size))


def _digest(file: BinaryIO, size: int) -> str:
    begin = max(size - _TAIL, 0)
    return hashlib.sha256(os.pread(file.fileno(), size - begin, begin)).hexdigest()
