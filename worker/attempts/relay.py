"""The relay reads what an attempt wrote into its run directory, and returns it as batches for the store.

It trusts nothing that it reads and holds at most a bounded part of each file in memory. Its offsets move only when the
batch was stored: until then, what an attempt wrote stays in the run directory.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
import time
from typing import TypeAlias

from store.blobs import Blobs
from store.facts.telemetry import MetricPoint
from store.rows.attempts import Batch, NewEvent
from store.rows.logs import NewLines
from torchyard.contract.errors import DataError
from torchyard.contract.events import Card, CheckpointSaved, Message, Metric, parse_line
from torchyard.contract.events import Progress as ProgressLine
from torchyard.contract.rundir import RunDir
from worker.attempts.artifacts import Artifacts, artifact_of
from worker.attempts.capturing import Capturing
from worker.attempts.copying import CHECKPOINT_LIMIT, CheckpointCopy, FileCopy
from worker.attempts.lines import CHUNK, LineReader, ReadResult, as_text
from worker.attempts.progress import Progress
from worker.attempts.spacing import Spacing
from worker.host import rundirs
from worker.host.mask import Mask
from worker.host.untrusted import folders_inside
from worker.packages.installation import LOG
from worker.tensorboard.brought import Brought
from worker.tensorboard.curves import EventFiles

_MAX_LINE = 16_384
"""Bytes of a log line that are stored."""
_MAX_WARNINGS = 100
"""Warnings about what cannot be read, in one batch."""
_MAX_UNFINISHED = 1000
"""Bytes that are shown of a line without an end."""
_EVENTS = "events.jsonl"
_STEP = "captured/step"
"""Among the offsets: the newest step that the script reported, if its files are captured."""
_ARTIFACTS = "artifacts/stored"
"""Among the offsets: whether all files in `artifacts` are stored, or said to be left out."""
_QUOTED_BYTES = 200
_Event: TypeAlias = Metric | ProgressLine | Card | Message | CheckpointSaved
_COPY_LIMIT = 1 << 25
"""Bytes of checkpoints that one call copies."""
_MOST_FOLDERS = 50_000
_MOST_UNANNOUNCED = 1000
"""Folders in `checkpoints` without an event line that are looked at."""


class Relay:
    """Reads the output of one attempt.

    `offsets`: the bytes of each file that are stored. `listed`: the names of its stored checkpoints. Beyond
    `most_checkpoints` one a minute is read. `mask`: what no name of a file may have. The caller calls `read` and
    commits the batch within `storing`, again and again, and `close` in the end.
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
        most_checkpoints: int | None = None,
        patterns: Sequence[str] = (),
        artifacts: Artifacts | None = None,
        mask: Mask | None = None,
    ) -> None:
        self.unfinished: dict[tuple[int | None, str], str] = {}
        """By rank and stream: the newest text of the line that has no end so far. It is in no batch."""
        self._run = run
        self._blobs = blobs
        self._offsets = dict(offsets)
        ranks = ((f"rank-{rank}", rank) for rank in range(world_size))
        self._sources: tuple[tuple[str, int | None], ...] = ((LOG, None), *ranks, ("launcher", None))
        """The logs that it reads, with their ranks. The set-up and the launcher have none."""
        self._limit = checkpoint_limit
        self._spacing = Spacing(most_checkpoints)
        self._unannounced = _MOST_UNANNOUNCED
        self._progress = Progress()
        self._stored_progress = self._progress
        self._known_checkpoints = set(listed)
        self._mask = mask or Mask()
        self._reader = LineReader(run.job)
        self._event_files = EventFiles(run.job, brought=Brought.of(run), mask=self._mask)
        self._copy: CheckpointCopy | None = None
        """The unfinished copy. The line that announces its checkpoint waits, and so do the lines behind it."""
        self._capturing = (
            Capturing(run, blobs, patterns, known=self._known_checkpoints, limit=checkpoint_limit, mask=self._mask)
            if patterns
            else None
        )
        self._artifacts = artifacts if _ARTIFACTS not in offsets else None
        self._copied: list[CheckpointCopy | FileCopy] = []
        """The copies that belong to the batch that was read last."""

    @property
    def folder(self) -> Path:
        """The folder of all run directories of the job."""
        return self._run.root.parent

    @property
    def copying(self) -> bool:
        """Whether a copy is unfinished: then `read` has more to do, even if it returned None."""
        return self._copying_checkpoints or (self._artifacts is not None and self._artifacts.unfinished)

    @property
    def _copying_checkpoints(self) -> bool:
        return self._copy is not None or (self._capturing is not None and self._capturing.copying)

    def read(self, *, final: bool = False, logs: bool = True) -> Batch | None:
        """Reads at most 256 KiB of each file. Returns None if there is nothing new. Keeps the start of a long line.

        Each call copies at most 32 MiB of checkpoints, without a lock. A checkpoint is in the batch as soon as it is
        copied completely. The events behind it wait until then, the logs do not.

        `final`: all processes have ended, so a last line without an end is complete; and if more than 256 MiB of a file
        are unread, only the last 16 MiB are read. All is read when the call returns None and `copying` is false.
        `logs`: whether to read them; those of an attempt that may store no more are not. Raises OSError: the next call
        reads the same again.
        """
        self._discard_copied()
        batch = Batch(offsets=dict(self._offsets))
        self._progress = self._stored_progress
        copy_budget = self._read_events(batch, final=final)
        batch.reports = batch.offsets.get(_EVENTS) != self._offsets.get(_EVENTS)
        if logs:
            self._read_logs(batch, final=final)
        else:
            self.unfinished.clear()
        self._read_event_files(batch, final=final)
        batch.points, batch.curves = self._timed(batch.points), self._timed(batch.curves)
        if final and copy_budget and batch.offsets == self._offsets:
            self._add_unannounced_checkpoints(batch, copy_budget)
            if not self._copying_checkpoints:
                self._announce_progress(batch)
        if self._capturing is not None:
            self._capture(self._capturing, batch, final=final)
        if self._is_empty(batch) and final and self._artifacts is not None and not self._copying_checkpoints:
            self._publish(self._artifacts, batch)
        return None if self._is_empty(batch) else batch

    @contextmanager
    def storing(self, batch: Batch) -> Generator[None]:
        """The caller commits the batch that was read last within this context: its blobs then keep their names.

        The next `read` continues after the batch, or reads it again if the block raised. Raises OSError.
        """
        with self._blobs.shared_lock() if self._copied else nullcontext():
            for copy in self._copied:
                copy.publish()
            yield
        if self._artifacts is not None:
            self._artifacts.committed()
        self._offsets = dict(batch.offsets)
        self._stored_progress = self._progress
        self._known_checkpoints.update(new.name for new in batch.checkpoints)

    def close(self) -> None:
        """Discards an unfinished copy. Raises OSError."""
        self._discard_copied()
        self._discard_unfinished()
        if self._capturing is not None:
            self._capturing.discard()
        if self._artifacts is not None:
            self._artifacts.discard()

    def _is_empty(self, batch: Batch) -> bool:
        return batch.offsets == self._offsets and not (batch.checkpoints or batch.events or batch.artifacts)

    def _read_events(self, batch: Batch, *, final: bool) -> int:
        """Returns how many bytes of checkpoints this call may still copy, or 0 if a line waits for its checkpoint."""
        copy_budget = _COPY_LIMIT
        for line, cut, start in self._read_lines(_EVENTS, batch, keep=CHUNK, final=final).lines:
            if cut:
                _warn(batch, f"a line of {_EVENTS} is too long: {as_text(line[:200], cut + len(line) - 200)}")
                continue
            event = _parse_event(line, batch)
            if not isinstance(event, CheckpointSaved):
                self._add_event(event, batch)
                continue
            copy_budget = self._add_checkpoint(event.name, batch, copy_budget)
            if self._copying_checkpoints:
                batch.offsets[_EVENTS] = start
                if not start and _EVENTS not in self._offsets:
                    del batch.offsets[_EVENTS]
                break
        return copy_budget

    def _capture(self, capturing: Capturing, batch: Batch, *, final: bool) -> None:
        """Adds files that the script wrote as checkpoints, once it has nothing else to read if `final`."""
        steps = [point.step for points in (batch.points, batch.curves) for point in points]
        step = max([*steps, self._offsets.get(_STEP, 0)])
        if steps:
            batch.offsets[_STEP] = step
        if final and (self._copy is not None or batch.offsets != self._offsets):
            return
        taken = [new.name for new in batch.checkpoints]
        warn = partial(_warn, batch)
        for copy in capturing.take(_COPY_LIMIT, step=step, final=final, taken=taken, warn=warn):
            batch.checkpoints.append(copy.checkpoint)
            self._copied.append(copy)

    def _publish(self, artifacts: Artifacts, batch: Batch) -> None:
        """Adds files that the job left, and in the end which of them are left out."""
        if _ARTIFACTS in self._offsets:
            return
        self._copied += (done := artifacts.take(_COPY_LIMIT))
        batch.artifacts += [artifact_of(copy) for copy in done]
        if artifacts.unfinished:
            return
        if (text := artifacts.message()) is not None:
            _warn(batch, text)
        if not self._is_empty(batch):
            batch.offsets[_ARTIFACTS] = 1

    def _read_logs(self, batch: Batch, *, final: bool) -> None:
        for (source, rank), stream in product(self._sources, ("stdout", "stderr")):
            found = self._read_lines(f"{source}.{stream}", batch, keep=_MAX_LINE, final=final, overwrites=True)
            if found.unfinished is not None:
                text, cut, _ = found.unfinished
                left = max(0, len(text) - _MAX_UNFINISHED)
                self.unfinished[rank, stream] = as_text(text[: len(text) - left], cut + left)
            lines = [as_text(line, cut) for line, cut, _ in found.lines]
            if lines:
                batch.lines.append(NewLines(rank=rank, stream=stream, lines=lines))

    def _read_event_files(self, batch: Batch, *, final: bool) -> None:
        """Adds what TensorBoard's event files say."""
        found = self._event_files.read(self._offsets, final=final)
        batch.offsets.update(found.offsets)
        batch.curves += found.points
        for text in found.warnings:
            _warn(batch, text)

    def _timed(self, points: list[MetricPoint]) -> list[MetricPoint]:
        """Returns the points. The time of one that claims to be older than the attempt is the attempt's start."""
        started = rundirs.started_ns(self._run) // 1000 if points else 0
        return [point if point.time >= started else replace(point, time=started) for point in points]

    def _read_lines(self, name: str, batch: Batch, *, keep: int, final: bool, overwrites: bool = False) -> ReadResult:
        """Returns the next lines of a file, and sets the batch's offset behind them."""
        offset = self._offsets.get(name, 0)
        path = (name,) if name == _EVENTS else ("logs", name)
        result = self._reader.read(*path, offset=offset, keep=keep, final=final, overwrites=overwrites)
        for text in result.warnings:
            _warn(batch, text)
        if result.offset != offset:
            batch.offsets[name] = result.offset
        return result

    def _add_event(self, event: Metric | ProgressLine | Card | Message | None, batch: Batch) -> None:
        if isinstance(event, Metric):
            batch.points += [MetricPoint(key, event.step, value, event.time) for key, value in event.values.items()]
        elif isinstance(event, ProgressLine):
            self._add_progress(event, batch)
        elif isinstance(event, Card):
            batch.card = event.values
        elif event is not None:
            data = {"level": event.level, "text": event.text}
            batch.events.append(NewEvent("message", data, event.time, limited=True))

    def _add_progress(self, event: ProgressLine, batch: Batch) -> None:
        known = self._progress
        self._progress = replace(known, first=known.first or event, newest=event)
        batch.progress = self._progress.as_json()
        if self._progress.should_announce():
            self._announce_progress(batch)

    def _announce_progress(self, batch: Batch) -> None:
        newest = self._progress.newest
        if newest is not None and newest != self._progress.announced:
            batch.events.append(NewEvent("progress", self._progress.as_json(), newest.time))
            self._progress = self._progress.with_newest_announced()

    def _add_unannounced_checkpoints(self, batch: Batch, copy_budget: int) -> None:
        """Adds checkpoints without an event line: the process ended before it could write the line."""
        if self._spacing.is_over(len(self._known_checkpoints)):
            if self._spacing.newest is not None:
                self._add_checkpoint(self._spacing.newest, batch, copy_budget, spaced=False)
            return
        for name in folders_inside(self._run.job, self._run.checkpoints.name, most=_MOST_FOLDERS):
            if name in self._known_checkpoints or name.startswith("."):
                continue
            if not self._unannounced:
                return
            if self._copy is None:
                self._unannounced -= 1
            if not _is_checkpoint_name(name):
                self._known_checkpoints.add(name)
                _warn(batch, f"checkpoint {name!r} is not listed: its name is not a valid checkpoint name")
                continue
            copy_budget = self._add_checkpoint(name, batch, copy_budget)
            if self._copying_checkpoints:
                return

    def _add_checkpoint(self, name: str, batch: Batch, copy_budget: int, *, spaced: bool = True) -> int:
        """Copies at most `copy_budget` bytes of the checkpoint. Returns what is left of the budget.

        `spaced`: leaves it out if the attempt publishes too many.
        """
        if name in self._known_checkpoints or any(new.name == name for new in batch.checkpoints):
            return copy_budget
        begun = self._copy is not None and self._copy.name == name
        count = len(self._known_checkpoints) + len(batch.checkpoints)
        if spaced and not begun and self._spacing.leaves_out(name, count=count):
            if (text := self._spacing.notice()) is not None:
                _warn(batch, text)
            return copy_budget
        if self._copy is not None and self._copy.name != name:  # the job has rewritten its event log
            self._discard_unfinished()
        try:
            if self._copy is None:
                self._copy = CheckpointCopy(self._run, self._blobs, name, limit=self._limit)
                self._spacing.begin(self._copy.described)
                if any(map(self._mask.finds, [name, *(file.path for file in self._copy.checkpoint.files)])):
                    raise DataError("its name, or that of one of its files, has the value of a secret")
            copy_budget = self._copy.copy_some(copy_budget)
        except DataError as error:
            self._discard_unfinished()
            self._known_checkpoints.add(name)
            _warn(batch, f"checkpoint {name} is not listed: {error.message}")
            return copy_budget
        except OSError:
            self._discard_unfinished()
            raise
        if copy_budget:
            batch.checkpoints.append(self._copy.checkpoint)
            self._copied.append(self._copy)
            self._copy = None
        return copy_budget

    def _discard_unfinished(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.discard()

    def _discard_copied(self) -> None:
        copied, self._copied = self._copied, []
        for copy in copied:
            copy.discard()


def _parse_event(raw: bytes, batch: Batch) -> _Event | None:
    """Returns None, and adds a warning, if the line is not an event."""
    try:
        event = parse_line(raw)
    except ValueError:
        if raw.strip():
            quoted = as_text(raw[:_QUOTED_BYTES], cut=max(0, len(raw) - _QUOTED_BYTES))
            _warn(batch, f"a line of {_EVENTS} is not an event that this worker knows: {quoted}")
        return None
    batch.lag_us = max(batch.lag_us, time.time_ns() // 1000 - event.time)
    return event


def _is_checkpoint_name(text: str) -> bool:
    try:
        CheckpointSaved(time=0, name=text)
    except ValueError:
        return False
    return True


def _warn(batch: Batch, text: str) -> None:
    if len(batch.events) < _MAX_WARNINGS:
        data = {"level": "warning", "text": text}
        batch.events.append(NewEvent("message", data, time.time_ns() // 1000, limited=True))
