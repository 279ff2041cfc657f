"""Follows the event files of one attempt as they grow, and returns their scalars as points.

A tag is the metric's key, with `_` for control characters. A file in a folder below another one with event files, or in
a folder named like a split of the data (`train`, `val`, …), puts the folder's name and `/` before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import os
from pathlib import Path
import re
import stat
import time
from typing import BinaryIO

from store.facts.telemetry import MetricPoint
from torchyard.contract.errors import DataError
from torchyard.contract.events import LAST_TIME_US
from torchyard.contract.text import METRIC_KEY_LENGTH, storable
from torchyard.host.untrusted import open_inside
from worker.host.looks import Parts
from worker.host.mask import Mask
from worker.tensorboard import finding, summaries, tfrecords
from worker.tensorboard.brought import PREFIX, Brought, name_of
from worker.tensorboard.budget import Budget

MOST_FILES = 100
"""Event files of one attempt that are read."""
_CHUNK = 1 << 18
_CALL = 1 << 20
"""Bytes that one call reads of all files together, at most."""
_MOST_RECORD = _CHUNK - 64
"""Bytes of the largest record that is read."""
MOST_COMPARED = 1000
"""Files that one look compares with those from before the attempt. The next look goes on with the others."""
_LOOK_S = 3.0
"""Seconds between two searches for new files."""
_LOOK_SHARE = 50
"""Pause after a search, as a multiple of its duration."""
_MOST_MASKED = 4096
"""Bytes of a tag in which secrets are masked, before its start is shown."""
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "eval", "evaluation", "test"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass
class Found:
    """What one call has read. `offsets`: the bytes of each file that are stored with it."""

    offsets: dict[str, int] = field(default_factory=dict[str, int])
    points: list[MetricPoint] = field(default_factory=list[MetricPoint])
    warnings: list[str] = field(default_factory=list[str])


class EventFiles:
    """The event files below `root`. `job`: as of `finding.find`.

    `brought`: those that were there before the attempt. Of these only what is not read yet is read.
    """

    def __init__(
        self,
        root: Path,
        job: Parts = (),
        *,
        brought: Brought | None = None,
        mask: Mask | None = None,
        look_s: float = _LOOK_S,
    ) -> None:
        self._root = root
        self._job = job
        self._brought = brought or Brought()
        self._mask = mask or Mask()
        self._look_s = look_s
        self._next_look = 0.0
        self._files: dict[str, Parts] = {}
        self._starts: dict[str, int] = {}
        """Where to begin to read a file. Not of those that were read before a restart."""
        self._idle: dict[str, tuple[int, ...]] = {}
        """Files that have nothing new, and what each was."""
        self._folders: frozenset[Parts] = frozenset()
        self._given_up: set[str] = set()
        """The names of files that cannot be read any further."""
        self._warned: set[str] = set()
        self._budget = Budget()
        self._comparisons = 0
        """How many more files this look may compare."""
        self._has_waiting = self._has_ended = False
        """Whether files wait for the next look to be compared, and whether all processes have ended."""

    @property
    def unfinished(self) -> bool:
        """Whether files wait to be compared after all processes have ended: then `read` has more to do."""
        return self._has_ended and self._has_waiting

    def read(self, offsets: Mapping[str, int], *, final: bool) -> Found:
        """Reads at most 256 KiB of each file behind its offset, 1 MiB of all, and 512 KiB of all in a second.

        `final`: all processes have ended, so nothing is to wait for: up to 64 MiB are read as fast as they are asked
        for. Raises OSError.
        """
        found = Found()
        goes_on = final and (self._has_waiting or not self._has_ended)
        if goes_on or time.monotonic() >= self._next_look:
            self._look(offsets, found)
        self._has_ended = final
        self._budget.refill(final=final)
        end = self._budget.left - _CALL
        for name, parts in self._files.items():
            offset = offsets.get(name, self._starts.get(name, 0))
            if name in self._given_up or self._has_size(parts, offset):
                continue
            if self._budget.left <= 0 and final:
                self._warn(
                    "late", "more than 64 MiB of event files of TensorBoard were unread: some is left out", found
                )
            if self._budget.left <= max(end, 0):
                break
            self._read_file(name, parts, offset, found)
        return found

    def _look(self, offsets: Mapping[str, int], found: Found) -> None:
        began = time.monotonic()
        self._comparisons, self._has_waiting = MOST_COMPARED, False
        known = {name for name in offsets if name.startswith(PREFIX)} | self._files.keys()
        paths = {name_of(parts): parts for parts in finding.find(self._root, self._job)}
        full = "files" in self._warned  # no more are read, so none is compared
        paths = {
            name: parts for name, parts in paths.items() if name in known or (not full and self._has_new(name, parts))
        }
        self._folders = frozenset(parts[:-1] for parts in paths.values())
        for name, parts in paths.items():
            if name not in known and len(known) >= MOST_FILES:
                text = f"the attempt writes more than {MOST_FILES} event files of TensorBoard; the others are not read"
                self._warn("files", text, found)
                break
            known.add(name)
            self._files[name] = parts
        took = time.monotonic() - began
        self._next_look = began + max(self._look_s, _LOOK_SHARE * took)

    def _has_new(self, name: str, parts: Parts) -> bool:
        """Returns whether a file, which was not read yet, has anything that was not there before the attempt.

        Returns False for one that waits to be compared.
        """
        earlier = self._brought.offsets.get(name)
        if earlier is not None:
            self._starts[name] = earlier
            return not self._has_size(parts, earlier)
        if not self._brought.endings:
            return True
        return self._differs(name, parts)

    def _differs(self, name: str, parts: Parts) -> bool:
        """Does what `_has_new` does for a file that may have come with the code."""
        try:
            status = self._root.joinpath(*self._located(parts)).lstat()
            found = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if self._idle.get(name) == found:
                return False
            if self._comparisons <= 0:
                self._has_waiting = True
                return False
            self._comparisons -= 1
            file = open_inside(self._root, *self._located(parts))
        except (DataError, OSError):
            return True  # whoever reads it says why it cannot be read
        if file is not None:
            with file:
                self._starts[name] = self._brought.end_in(file)
        if self._starts.get(name) == status.st_size:
            self._idle[name] = found
            return False
        return True

    def _located(self, parts: Parts) -> Parts:
        return finding.located(parts, self._job)

    def _read_file(self, name: str, parts: Parts, offset: int, found: Found) -> None:
        try:
            file = open_inside(self._root, *self._located(parts))
        except DataError as error:
            return self._give_up(name, f"{storable(error.message)}, and is not read", found)
        except PermissionError:
            return self._give_up(name, f"{self._shown(parts)} cannot be opened", found)
        if file is not None:
            with file:
                self._read_part(name, parts, file, offset, found)
        return None

    def _has_size(self, parts: Parts, offset: int) -> bool:
        """Returns True if the file surely has nothing new."""
        try:
            status = os.lstat(self._root.joinpath(*self._located(parts)))
        except OSError:
            return False
        return status.st_size == offset and stat.S_ISREG(status.st_mode)

    def _read_part(self, name: str, parts: Parts, file: BinaryIO, offset: int, found: Found) -> None:
        size = os.fstat(file.fileno()).st_size
        if size < offset:
            found.warnings.append(f"{self._shown(parts)} has become shorter, and is read again from its start")
            offset = found.offsets[name] = self._brought.end_in(file)
        data = os.pread(file.fileno(), _CHUNK, offset)
        self._budget.left -= len(data)
        part = tfrecords.split(data, offset, file_size=size, limit=_MOST_RECORD)
        if part.offset != offset:
            found.offsets[name] = part.offset
        if part.skipped:
            text = f"{self._shown(parts)} has records of more than {_MOST_RECORD} bytes, which are left out"
            self._warn(f"{name} large", text, found)
        for record in part.records:
            self._add(parts, record, found)
        if part.damaged:
            self._give_up(
                name, f"{self._shown(parts)} is damaged at byte {part.offset}, and is not read further", found
            )

    def _add(self, parts: Parts, record: bytes, found: Found) -> None:
        try:
            event = summaries.parse(record)
        except ValueError as error:
            return self._warn("malformed", f"{self._shown(parts)} has an event that cannot be read: {error}", found)
        if not event.values:
            return None
        if event.step < 0:
            return self._warn(
                "step", f"{self._shown(parts)} has an event of the step {event.step}, which is left out", found
            )
        written = summaries.microseconds(event.time, last=LAST_TIME_US)
        for tag, value in event.values:
            key = self._key(parts[:-1], tag)
            if key is None:
                start = storable(self._mask.text(tag[:_MOST_MASKED].decode("utf-8", "replace"))[:60])
                text = f"a tag must be text of 1 to {METRIC_KEY_LENGTH} characters, and is left out: {start!r}"
                self._warn("tag", f"{self._shown(parts)}: {text}", found)
                continue
            found.points.append(MetricPoint(key, event.step, value, written))
        return None

    def _key(self, folder: Parts, tag: bytes) -> str | None:
        """Returns the metric's key, or None if the tag is too long, empty or not text."""
        if len(tag) > 4 * METRIC_KEY_LENGTH:
            return None
        try:
            text = self._mask.text(tag.decode())
        except UnicodeDecodeError:
            return None
        prefix = self._prefix(folder)
        key = _CONTROL.sub("_", f"{prefix}/{text}" if prefix and not text.startswith(f"{prefix}/") else text)
        return key if text and len(key) <= METRIC_KEY_LENGTH else None

    def _prefix(self, folder: Parts) -> str:
        above = (folder[:depth] for depth in range(len(folder)))
        top = next((outer for outer in above if outer in self._folders), None)
        if top is not None:
            return storable(self._mask.text("/".join(folder[len(top) :])))
        return folder[-1] if folder and folder[-1].lower() in _SPLITS else ""

    def _give_up(self, name: str, text: str, found: Found) -> None:
        self._given_up.add(name)
        found.warnings.append(text)

    def _shown(self, parts: Parts) -> str:
        return storable(self._mask.text("/".join(parts)))[-200:]

    def _warn(self, topic: str, text: str, found: Found) -> None:
        """Warns once about each topic."""
        if topic not in self._warned:
            self._warned.add(topic)
            found.warnings.append(text)
