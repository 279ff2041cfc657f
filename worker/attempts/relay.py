"""The relay: what an attempt wrote into its run directory, as batches for the store.

It trusts nothing that it reads, holds at most a bounded part of each file in memory, and moves its offsets only with
the batch that stores what it read: the run directory is the spool.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
import time
from typing import TypeAlias

from store.blobs import Blobs
from store.rows.attempts import Batch, NewEvent
from store.rows.logs import NewLines
from store.rows.metrics import MetricPoint
from torchyard.contract.errors import DataError
from torchyard.contract.events import Card, CheckpointSaved, Message, Metric, parse_line
from torchyard.contract.events import Progress as ProgressLine
from torchyard.contract.rundir import RunDir
from worker.attempts.copying import CHECKPOINT_LIMIT, CheckpointCopy
from worker.attempts.lines import CHUNK, Line, Lines, as_text
from worker.attempts.progress import Progress
from worker.untrusted import folders_inside

_MAX_LINE = 16_384
_MAX_COMPLAINTS = 100  # a flood of nonsense is not worth more rows in one batch
_EVENTS = "events.jsonl"
_Event: TypeAlias = Metric | ProgressLine | Card | Message | CheckpointSaved
_COPIED = 1 << 25
"""Bytes of checkpoints that one call copies."""


class Relay:
    """Reads one attempt: `offsets` are the bytes of each file that are stored, `listed` its checkpoints' names.

    Whoever has one calls `read`, and commits the batch within `storing`, again and again. In the end, `close`.
    """

    def __init__(
        self,
        run: RunDir,
        blobs: Blobs,
        *,
        offsets: dict[str, int],
        listed: Iterable[str],
        world_size: int,
        checkpoint_limit: int = CHECKPOINT_LIMIT,
    ) -> None:
        self._run = run
        self._blobs = blobs
        self._offsets = dict(offsets)
        self._ranks = (*range(world_size), None)
        """Whose output it reads; None is the launcher."""
        self._limit = checkpoint_limit
        self._progress = Progress()
        self._stored_progress = self._progress
        self._seen = set(listed)
        self._files = Lines(run.job)
        self._copy: CheckpointCopy | None = None
        """Under way. The line that announces it, and those behind it, wait."""
        self._copied: list[CheckpointCopy] = []
        """Of the batch that was read last."""

    @property
    def folder(self) -> Path:
        """Of all attempts of the job."""
        return self._run.root.parent

    @property
    def copying(self) -> bool:
        """Whether a checkpoint is under way: `read` has more to do, also where it answered None."""
        return self._copy is not None

    def read(self, *, final: bool = False) -> Batch | None:
        """What is new, at most 256 KiB of each file; None where nothing is. Of a longer line, only the start is kept.

        A checkpoint is copied 32 MiB a call, without a lock, and is in the batch once all of it is copied; events
        behind it wait, logs do not.

        `final`: no process writes any more, so a last line without an end is whole, and of more than 256 MiB of a file
        only the last 16 MiB are read. Nothing is left once it answers None and is not `copying`. Raises OSError;
        nothing is then lost, the next call reads it again.
        """
        self._discard_copied()
        batch = Batch(offsets=dict(self._offsets))
        self._progress = self._stored_progress
        room = self._read_events(batch, final=final)
        for rank, stream in product(self._ranks, ("stdout", "stderr")):
            name = f"{'launcher' if rank is None else f'rank-{rank}'}.{stream}"
            found = self._lines(name, batch, keep=_MAX_LINE, final=final)
            lines = [as_text(line, cut) for line, cut, _ in found]
            if lines:
                batch.lines.append(NewLines(rank=rank, stream=stream, lines=lines))
        if final and room and batch.offsets == self._offsets:
            self._take_unannounced(batch, room)
            if not self.copying:
                self._tell_progress(batch)
        if batch.offsets == self._offsets and not batch.checkpoints and not batch.events:
            return None
        return batch

    @contextmanager
    def storing(self, batch: Batch) -> Generator[None]:
        """Held while the batch that was read last is committed: its blobs have their names, and are not removed.

        The next `read` goes on behind it; where this raises, it reads it again. Raises OSError.
        """
        with self._blobs.shared_lock() if self._copied else nullcontext():
            for copy in self._copied:
                copy.publish()
            yield
        self._offsets = dict(batch.offsets)
        self._stored_progress = self._progress
        self._seen.update(new.name for new in batch.checkpoints)

    def close(self) -> None:
        """Gives up what is under way. Raises OSError."""
        self._discard_copied()
        self._give_up()

    def _read_events(self, batch: Batch, *, final: bool) -> int:
        """Returns how many bytes of checkpoints may still be copied; 0 where a line waits for its checkpoint."""
        room = _COPIED
        for line, cut, start in self._lines(_EVENTS, batch, keep=CHUNK, final=final):
            if cut:
                _complain(batch, f"a line of {_EVENTS} is too long: {as_text(line[:200], cut + len(line) - 200)}")
                continue
            event = _event(line, batch)
            if not isinstance(event, CheckpointSaved):
                self._take_event(event, batch)
                continue
            room = self._take_checkpoint(event.name, batch, room)
            if self.copying:
                batch.offsets[_EVENTS] = start
                if not start and _EVENTS not in self._offsets:
                    del batch.offsets[_EVENTS]
                break
        return room

    def _lines(self, name: str, batch: Batch, *, keep: int, final: bool) -> list[Line]:
        """The next lines of a file; the batch then goes on behind them."""
        offset = self._offsets.get(name, 0)
        path = (name,) if name == _EVENTS else ("logs", name)
        part = self._files.read(*path, offset=offset, keep=keep, final=final)
        for text in part.complaints:
            _complain(batch, text)
        if part.offset != offset:
            batch.offsets[name] = part.offset
        return part.lines

    def _take_event(self, event: Metric | ProgressLine | Card | Message | None, batch: Batch) -> None:
        if isinstance(event, Metric):
            batch.points += [MetricPoint(key, event.step, value, event.time) for key, value in event.values.items()]
        elif isinstance(event, ProgressLine):
            self._take_progress(event, batch)
        elif isinstance(event, Card):
            batch.card = event.values
        elif event is not None:
            batch.events.append(NewEvent("message", {"level": event.level, "text": event.text}, event.time))

    def _take_progress(self, event: ProgressLine, batch: Batch) -> None:
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

    def _take_unannounced(self, batch: Batch, room: int) -> None:
        """Checkpoints whose line was lost with the process that would have written it."""
        for name in folders_inside(self._run.job, self._run.checkpoints.name):
            if name in self._seen or name.startswith("."):
                continue
            if not _is_name(name):
                self._seen.add(name)
                _complain(batch, f"checkpoint {name!r} is not listed: that is no name for one")
                continue
            room = self._take_checkpoint(name, batch, room)
            if self.copying:
                return

    def _take_checkpoint(self, name: str, batch: Batch, room: int) -> int:
        """Copies at most `room` bytes of it, and answers what is left of that."""
        if name in self._seen or any(new.name == name for new in batch.checkpoints):
            return room
        if self._copy is not None and self._copy.name != name:  # the file of events has changed below us
            self._give_up()
        try:
            if self._copy is None:
                self._copy = CheckpointCopy(self._run, self._blobs, name, limit=self._limit)
            room = self._copy.go_on(room)
        except DataError as error:
            self._give_up()
            self._seen.add(name)
            _complain(batch, f"checkpoint {name} is not listed: {error.message}")
            return room
        except OSError:
            self._give_up()
            raise
        if room:
            batch.checkpoints.append(self._copy.checkpoint)
            self._copied.append(self._copy)
            self._copy = None
        return room

    def _give_up(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.discard()

    def _discard_copied(self) -> None:
        copied, self._copied = self._copied, []
        for copy in copied:
            copy.discard()


def _event(raw: bytes, batch: Batch) -> _Event | None:
    """None, and a complaint, for a line that is none."""
    try:
        event = parse_line(raw)
    except ValueError:
        if raw.strip():
            _complain(batch, f"a line of {_EVENTS} is not one that this worker knows: {as_text(raw[:200])!r}")
        return None
    batch.lag_us = max(batch.lag_us, time.time_ns() // 1000 - event.time)
    return event


def _is_name(text: str) -> bool:
    try:
        CheckpointSaved(time=0, name=text)
    except ValueError:
        return False
    return True


def _complain(batch: Batch, text: str) -> None:
    if len(batch.events) < _MAX_COMPLAINTS:
        batch.events.append(NewEvent("message", {"level": "warning", "text": text}, time.time_ns() // 1000))
