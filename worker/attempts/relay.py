"""The relay: what an attempt wrote into its run directory, as batches for the store.

It trusts nothing that it reads, holds at most a bounded part of each file in memory, and moves its offsets only with
the batch that stores what it read: the run directory is the spool.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
import os
from pathlib import Path
import time
from typing import Any, BinaryIO

from pydantic import ValidationError

from store.blobs import Blobs
from store.rows.attempts import Batch, NewEvent
from store.rows.checkpoints import NewCheckpoint
from store.rows.logs import NewLines
from store.rows.metrics import NewPoint
from torchyard.errors import DataError
from torchyard.events import LINE, Card, CheckpointSaved, Message, Metric, Progress
from torchyard.rundir import MANIFEST, STATE_FILE, Manifest, ManifestFile, RunDir
from torchyard.schema import storable
from worker.untrusted import folders_inside, open_inside

_CHUNK = 1 << 18
_MAX_LINE = 16_384
_SEARCH = 1 << 26  # bytes of a file in which one call looks for the end of a line
_MAX_MANIFEST = 1 << 20
_MAX_COMPLAINTS = 100  # a flood of nonsense is not worth more rows in one batch
_EVENTS = "events.jsonl"
_Decoder = codecs.getincrementaldecoder("utf-8")
_PROGRESS_US = (500_000, 60_000_000)
"""The least and the most time between two events of progress."""


class Relay:
    """Reads one attempt: `offsets` are the bytes of each file that are stored, `listed` its checkpoints' names."""

    def __init__(
        self, run: RunDir, blobs: Blobs, *, offsets: dict[str, int], listed: Iterable[str], world_size: int
    ) -> None:
        self._run = run
        self._blobs = blobs
        self._offsets = dict(offsets)
        self._ranks = (*range(world_size), None)
        """Whose output it reads; None is the launcher."""
        self._progress = _Progress()
        self._stored_progress = self._progress
        self._seen = set(listed)
        self._unreadable: set[str] = set()
        self._searched: dict[str, tuple[int, int]] = {}
        """Of a file whose next line is a long one: where the line starts, and where to search on for its end."""

    @property
    def folder(self) -> Path:
        """Of all attempts of the job."""
        return self._run.root.parent

    def read(self, *, final: bool = False) -> Batch | None:
        """What is new, at most 256 KiB of each file; None where nothing is. Of a longer line, only the start is kept.

        `final`: no process writes any more, so a last line without an end is whole. Raises OSError; nothing is then
        lost, the next call reads it again.
        """
        batch = Batch(offsets=dict(self._offsets))
        self._progress = self._stored_progress
        for line, cut in self._lines(_EVENTS, batch, keep=_CHUNK, final=final):
            if cut:
                _complain(batch, f"a line of {_EVENTS} is too long: {_as_text(line[:200], cut + len(line) - 200)}")
                continue
            self._take_event(line, batch)
        for rank, stream in product(self._ranks, ("stdout", "stderr")):
            name = f"{'launcher' if rank is None else f'rank-{rank}'}.{stream}"
            lines = [_as_text(line, cut) for line, cut in self._lines(name, batch, keep=_MAX_LINE, final=final)]
            if lines:
                batch.lines.append(NewLines(rank=rank, stream=stream, lines=lines))
        if final and batch.offsets == self._offsets:
            self._take_unannounced(batch)
            self._tell_progress(batch)
        if batch.offsets == self._offsets and not batch.checkpoints and not batch.events:
            return None
        return batch

    def stored(self, batch: Batch) -> None:
        """The batch is committed: the next `read` goes on behind it."""
        self._offsets = dict(batch.offsets)
        self._stored_progress = self._progress
        self._seen.update(new.name for new in batch.checkpoints)

    def _lines(self, name: str, batch: Batch, *, keep: int, final: bool) -> Iterator[tuple[bytes, int]]:
        """The lines that one chunk holds, or one longer line: at most `keep` bytes of each, and how many were cut."""
        parts = (name,) if name == _EVENTS else ("logs", name)
        offset = self._offsets.get(name, 0)
        try:
            file = open_inside(self._run.job, *parts)
        except DataError as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                _complain(batch, f"{error.message}, and is not read")
            return
        if file is None:
            return
        with file:
            if os.fstat(file.fileno()).st_size < offset:
                _complain(batch, f"{name} has become shorter, and is read again from its start")
                batch.offsets[name] = offset = 0
            data = _read(file, offset)
            end = data.rfind(b"\n") + 1
            if not end and len(data) == _CHUNK:
                stop, behind = self._end(name, file, offset, final=final)
                if behind > offset:
                    batch.offsets[name] = behind
                    yield data[:keep], stop - offset - keep
                return
        if not end and final:
            end = len(data)  # the last line, without its end
        if end:
            batch.offsets[name] = offset + end
            for line in data[:end].removesuffix(b"\n").split(b"\n"):
                yield line[:keep], max(0, len(line) - keep)

    def _end(self, name: str, file: BinaryIO, offset: int, *, final: bool) -> tuple[int, int]:
        """Where the long line at `offset` stops, and what follows it starts; twice `offset` while that is not found."""
        start, position = self._searched.get(name, (offset, offset))
        position = position if start == offset else offset
        limit = position + _SEARCH
        while final or position < limit:
            data = _read(file, position)
            found = data.find(b"\n")
            if found >= 0:
                return position + found, position + found + 1
            position += len(data)
            if len(data) < _CHUNK:
                break
        self._searched[name] = (offset, position)
        return (position, position) if final else (offset, offset)

    def _take_event(self, raw: bytes, batch: Batch) -> None:
        try:
            event = LINE.validate_json(raw)
        except ValidationError:
            if raw.strip():
                _complain(batch, f"a line of {_EVENTS} is not one that this worker knows: {_as_text(raw[:200])!r}")
            return
        batch.lag_us = max(batch.lag_us, time.time_ns() // 1000 - event.time)
        if isinstance(event, Metric):
            batch.points += [NewPoint(key, event.step, value, event.time) for key, value in event.values.items()]
        elif isinstance(event, Progress):
            self._take_progress(event, batch)
        elif isinstance(event, Card):
            batch.card = event.values
        elif isinstance(event, Message):
            batch.events.append(NewEvent("message", {"level": event.level, "text": event.text}, event.time))
        else:
            self._take_checkpoint(event.name, batch)

    def _take_progress(self, event: Progress, batch: Batch) -> None:
        known = self._progress
        self._progress = replace(known, first=known.first or event, newest=event)
        batch.progress = self._progress.shown()
        if self._progress.is_news():
            self._tell_progress(batch)

    def _tell_progress(self, batch: Batch) -> None:
        newest = self._progress.newest
        if newest is not None and newest != self._progress.told:
            batch.events.append(NewEvent("progress", self._progress.shown(), newest.time))
            self._progress = replace(self._progress, told=newest)

    def _take_unannounced(self, batch: Batch) -> None:
        """Checkpoints whose line was lost with the process that would have written it."""
        for name in folders_inside(self._run.job, "checkpoints"):
            if name in self._seen or name.startswith("."):
                continue
            if _is_name(name):
                self._take_checkpoint(name, batch)
            else:
                self._seen.add(name)
                _complain(batch, f"checkpoint {name!r} is not listed: that is no name for one")

    def _take_checkpoint(self, name: str, batch: Batch) -> None:
        if name in self._seen:
            return
        try:
            batch.checkpoints.append(self._publish(name))
        except DataError as error:
            self._seen.add(name)
            _complain(batch, f"checkpoint {name} is not listed: {error.message}")

    def _publish(self, name: str) -> NewCheckpoint:
        folder = ("checkpoints", name)
        raw = open_inside(self._run.job, *folder, MANIFEST)
        if raw is None:
            raise DataError("it has no manifest")
        with raw:
            text = raw.read(_MAX_MANIFEST)
        try:
            manifest = Manifest.model_validate_json(text)
        except ValidationError:
            raise DataError("its manifest cannot be read") from None
        if not any(file.path == STATE_FILE for file in manifest.files):
            raise DataError(f"it has no {STATE_FILE}")
        return NewCheckpoint(name, manifest, [self._store(folder, file) for file in manifest.files])

    def _store(self, folder: tuple[str, str], file: ManifestFile) -> ManifestFile:
        source = open_inside(self._run.job, *folder, *file.path.split("/"))
        if source is None:
            raise DataError(f"its file {file.path} is missing")
        with source:
            blob = self._blobs.add(source)
        if (blob.sha256, blob.size) != (file.sha256, file.size):
            raise DataError(f"its file {file.path} is not the one in its manifest")
        return file


@dataclass(frozen=True)
class _Progress:
    """How far the attempt is: the first line that said so, the newest, and the newest that became an event."""

    first: Progress | None = None
    newest: Progress | None = None
    told: Progress | None = None

    def is_news(self) -> bool:
        """Whether the newest is worth an event: the older the attempt, the fewer, or a month of training would leave
        millions of them."""
        if self.told is None or self.newest is None or self.first is None or self.newest.epoch != self.told.epoch:
            return True
        age = self.newest.time - self.first.time
        return self.newest.time - self.told.time >= min(max(age // 500, _PROGRESS_US[0]), _PROGRESS_US[1])

    def shown(self) -> dict[str, Any]:
        assert self.first is not None
        assert self.newest is not None
        event, total, eta = self.newest, self.newest.total_steps, None
        steps, took = event.step - self.first.step, event.time - self.first.time
        if total and steps > 0 and took > 0:
            eta = round(took / 1e6 / steps * max(total - event.step, 0), 1)
        fraction = min(event.step / total, 1.0) if total else None
        return event.model_dump(include={"step", "total_steps", "epoch", "epochs"}) | {
            "fraction": fraction,
            "eta_seconds": eta,
        }


def _is_name(text: str) -> bool:
    try:
        CheckpointSaved(time=0, name=text)
    except ValidationError:
        return False
    return True


def _complain(batch: Batch, text: str) -> None:
    if len(batch.events) < _MAX_COMPLAINTS:
        batch.events.append(NewEvent("message", {"level": "warning", "text": text}, time.time_ns() // 1000))


def _read(file: BinaryIO, offset: int) -> bytes:
    return os.pread(file.fileno(), _CHUNK, offset)


def _as_text(raw: bytes, cut: int = 0) -> str:
    if not cut:
        return storable(raw.decode("utf-8", "replace"))
    start = _Decoder("replace").decode(raw)  # a character that was cut in two is left out
    return storable(f"{start} … [{cut} bytes cut]")
