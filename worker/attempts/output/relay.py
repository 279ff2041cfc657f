"""The relay reads what an attempt wrote into its run directory, and returns it as batches for the store.

It trusts nothing that it reads and holds at most a bounded part of each file in memory. Its state moves only when the
batch was stored: until then, what an attempt wrote stays in the run directory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from store.worker.records import Batch, BlobStore, FinishedBlob, MetricPoint, RefusedBlob
from torchyard.contract.attempts.events import Remeasured, Shown
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.failpoints import failpoint
from worker.attempts.capture.capturing import Capturing
from worker.attempts.files.copying import CHECKPOINT_LIMIT, Copy
from worker.attempts.keep.left_files import LeftFiles
from worker.attempts.keep.unmatched import Unmatched
from worker.attempts.output.events import EVENTS, EventReader
from worker.attempts.output.logs import LogReader
from worker.attempts.output.media import MEDIA_LIMIT, ShownItems
from worker.attempts.output.publishing import Publishing
from worker.attempts.output.warnings import warn
from worker.curves.brought import Brought
from worker.curves.following import CurveFiles
from worker.host import rundirs
from worker.host.looks import Match
from worker.host.mask import Mask

COPY_LIMIT = 1 << 25
"""Bytes of checkpoints that one call copies."""
_FILES = f"{EVENTS}/files"
_CAPTURED_STEP = "captured/step"
_DONE = {name: f"{name}/stored" for name in ("artifacts", "kept", "unmatched", "unmatched_at_end")}


@dataclass(frozen=True)
class RelayState:
    """The attempt's row keeps it as JSON, so that a later daemon continues where this one has left off."""

    offsets: Mapping[str, int] = field(default_factory=dict[str, int])
    """By name of a file: the bytes of it that are stored. That of `_FILES` is as `files_at` says."""
    captured_step: int | None = None
    """The newest step that the script reported, if its files are captured."""
    done: frozenset[str] = frozenset()
    """What was done once: `artifacts` and `kept`, when all files there are stored or said to be left out; `unmatched`
    and `unmatched_at_end`, when it was said which patterns match nothing."""

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "RelayState":
        """Returns what the attempt's row keeps."""
        numbers = {str(name): int(number) for name, number in stored.items()}
        step = numbers.pop(_CAPTURED_STEP, None)
        done = frozenset(name for name, key in _DONE.items() if numbers.pop(key, 0))
        return cls(numbers, step, done)

    def as_json(self) -> dict[str, int]:
        """Returns what the attempt's row keeps: the offsets, and the rest under names that no file has."""
        step = {} if self.captured_step is None else {_CAPTURED_STEP: self.captured_step}
        return {**self.offsets, **step, **{_DONE[name]: 1 for name in sorted(self.done)}}

    @property
    def files_at(self) -> int:
        """The bytes of the event log before the first line whose files are not stored."""
        return self.offsets.get(_FILES, self.offsets.get(EVENTS, 0))

    def with_files_at(self, offset: int) -> "RelayState":
        """Returns the state after the files of all lines before this offset were stored."""
        offsets = {name: number for name, number in self.offsets.items() if name != _FILES}
        return replace(self, offsets=offsets | ({} if offset == offsets.get(EVENTS, 0) else {_FILES: offset}))

    def with_done(self, name: str) -> "RelayState":
        """Returns the state after something was done."""
        return replace(self, done=self.done | {name})


class Relay:
    """Reads the output of one attempt.

    `state`: what of it is stored. `listed`: the names of its stored checkpoints. `captured`: those that any attempt of
    the job has captured. Beyond `most_checkpoints` one a minute is read. `patterns`: the files that become checkpoints.
    `left`: the files that are stored by their paths. `unmatched` says which patterns match nothing. `metrics`: what
    finds metrics in lines. `mask`: what no name of a file may have. The caller calls `read`, stores `blobs` and
    the batch, and calls `note_stored`, again and again, and `close` in the end. Where `blobs` take long to be stored,
    `set_aside` has it read on meanwhile.
    """

    def __init__(
        self,
        run: RunDir,
        blobs: BlobStore,
        *,
        state: RelayState = RelayState(),
        listed: Iterable[str],
        captured: Iterable[str] = (),
        world_size: int,
        nodes: int = 1,
        checkpoint_limit: int = CHECKPOINT_LIMIT,
        most_checkpoints: int | None = None,
        patterns: Sequence[str] = (),
        left: Sequence[LeftFiles] = (),
        unmatched: Unmatched | None = None,
        metrics: Sequence[str] = (),
        mask: Mask | None = None,
    ) -> None:
        mask, known, limit = mask or Mask(), set(listed), checkpoint_limit
        self._run = run
        self._blobs = blobs
        self._state = state
        self._events = EventReader(run.job)
        self._logs = LogReader(run.job, world_size=world_size, nodes=nodes, metrics=metrics)
        self._curve_files = CurveFiles(
            run.root.parent,
            rundirs.job_path(run),
            brought=Brought.of(run),
            since_ms=rundirs.came_ns(run) // 1_000_000,
            mask=mask,
        )
        self._checkpoints = Publishing(run, blobs, known=known, limit=limit, most=most_checkpoints, mask=mask)
        self._capturing = (
            Capturing(run, blobs, patterns, known=set(captured), limit=limit, mask=mask) if patterns else None
        )
        self._shown = ShownItems(run, blobs, mask=mask)
        self._left = left
        self._unmatched = unmatched
        self._copied: list[Copy] = []
        """The copies that belong to the batch that was read last, or to what was set aside."""
        self._first_copied_at: int | None = None
        """The offset of the first line whose files they are."""
        self._aside: Batch | None = None
        self._aside_state = state
        """The state after what was set aside is stored."""
        self._has_lines = self._has_files = False
        """What the batch has that was read last."""
        self.error: OSError | None = None
        """Why files were left out of the batch that was read last."""

    @property
    def folder(self) -> Path:
        """The folder of all run directories of the job."""
        return self._run.root.parent

    @property
    def unfinished(self) -> Mapping[tuple[int | None, str], str]:
        """By rank and stream: the newest text of the line that has no end so far. It is in no batch."""
        return self._logs.unfinished

    @property
    def copying(self) -> bool:
        """Whether a copy or a look may go on: then `read` has more to do, even if it returned None."""
        if self._curve_files.unfinished:
            return True
        return self._aside is None and (self._copying_checkpoints or any(files.unfinished for files in self._left))

    def is_captured(self, match: Match) -> bool:
        """Returns whether a file is stored as a checkpoint, as it is."""
        return self._capturing is not None and self._capturing.has(match)

    @property
    def _copying_checkpoints(self) -> bool:
        return self._checkpoints.copying or (self._capturing is not None and self._capturing.copying)

    def read(
        self, *, final: bool = False, completed: bool = False, logs: bool = True, media: bool = True
    ) -> Batch | None:
        """Reads at most 256 KiB of each file. Returns None if there is nothing new. Keeps the start of a long line.

        Each call copies at most 32 MiB of checkpoints, without a lock. A checkpoint is in the batch as soon as it is
        copied completely. Later lines that have files wait until then, all other lines do not.

        `final`: all processes have ended, so a last line without an end is complete; and if more than 256 MiB of a file
        are unread, only the last 16 MiB are read. All is read when the call returns None and `copying` is false.
        `completed`: they have ended with success. `logs`, `media`: whether to read them; those of an attempt that may
        store no more are not. Raises OSError: the next call reads the same again. If only files cannot be stored, and
        there is something else, `error` has it instead.
        """
        self._has_lines, self._has_files = True, self._aside is None
        failpoint("output.read")
        batch, offsets = Batch(offsets={}), dict(self._state.offsets)
        if _FILES not in offsets and EVENTS in offsets:
            offsets[_FILES] = offsets[EVENTS]
        self._events.read(batch, offsets, final=final)
        batch.reports = offsets.get(EVENTS) != self._state.offsets.get(EVENTS)
        if logs:
            self._logs.read(batch, offsets, final=final)
        else:
            self._logs.unfinished.clear()
        self._read_curve_files(batch, offsets, final=final)
        batch.change_points(self._timed)
        state = replace(self._state, offsets=offsets)
        state = state.with_files_at(state.offsets.get(_FILES, 0))
        steps = [point.step for _, points in batch.by_source for point in points]
        if self._capturing is not None and steps:
            state = replace(state, captured_step=max([*steps, state.captured_step or 0]))
        self.error = None
        if self._has_files:
            self._discard_copied()
            batch, state = self._with_files(batch, state, final=final, completed=completed, media=media)
        batch.offsets = state.as_json()
        return None if self._is_empty(batch, state) else batch

    def set_aside(self, batch: Batch) -> Batch | None:
        """Takes what names `blobs` out of the batch that was read last. Returns the rest of it, if there is any.

        Until `arrived` or `take_back`, `read` leaves files alone.
        """
        state = RelayState.of(batch.offsets)
        named = {"checkpoints": batch.checkpoints, "artifacts": batch.artifacts, "media": batch.media}
        self._aside = Batch(offsets={}, **named, remeasured=batch.remeasured)
        self._aside_state, self._has_files = state, False
        state = replace(state, done=self._state.done)
        if self._first_copied_at is not None:
            state = state.with_files_at(self._first_copied_at)
        rest = replace(batch, offsets=state.as_json(), checkpoints=[], artifacts=[], media=[], remeasured=None)
        return None if self._is_empty(rest, state) else rest

    def arrived(self) -> Batch:
        """Returns what was set aside, as a batch whose blobs are stored. It is in the place of the one read last."""
        assert self._aside is not None
        self._has_lines, self._has_files = False, True
        state = replace(self._state.with_files_at(self._aside_state.files_at), done=self._aside_state.done)
        return replace(self._aside, offsets=state.as_json())

    def take_back(self, *, refused: RefusedBlob | None = None) -> None:
        """Has `read` begin again with what was set aside, but for the checkpoint with a file that was refused."""
        aside, self._aside = self._aside, None
        if refused is not None and aside is not None:
            self._checkpoints.refuse(aside.checkpoints, refused)

    @property
    def blobs(self) -> Sequence[FinishedBlob]:
        """The blobs that the batch names which was read last: they are put into the store before it."""
        return [blob for copy in self._copied for blob in copy.blobs] if self._has_files else []

    def note_stored(self, batch: Batch) -> None:
        """Notes that the batch is stored which was read last: the next `read` continues after it.

        Without this call, it reads the same again.
        """
        self._state = RelayState.of(batch.offsets)
        if self._has_lines:
            self._events.stored()
        if not self._has_files:
            return
        self._aside = None
        for files in self._left:
            files.committed()
        self._checkpoints.known.update(new.name for new in batch.checkpoints if new.source is None)
        if self._capturing is not None:
            self._capturing.stored(new.name for new in batch.checkpoints if new.source is not None)

    def close(self) -> None:
        """Discards unfinished copies, and ends what parses for it. Raises OSError."""
        self._curve_files.close()
        self._discard_copied()
        self._checkpoints.discard()
        if self._capturing is not None:
            self._capturing.discard()
        for files in self._left:
            files.discard()

    def _is_empty(self, batch: Batch, state: RelayState) -> bool:
        return state == self._state and not (batch.checkpoints or batch.events or batch.artifacts or batch.media)

    def _with_files(
        self, batch: Batch, state: RelayState, *, final: bool, completed: bool, media: bool
    ) -> tuple[Batch, RelayState]:
        """Returns the batch with what has files, or without it if only the rest can be stored. Raises OSError."""
        whole = replace(batch, checkpoints=[], artifacts=[], media=[], events=[*batch.events])
        try:
            return whole, self._read_files(whole, state, final=final, completed=completed, media=media)
        except OSError as error:
            if self._is_empty(batch, state):
                raise
            self.error, self._has_files = error, False
            return batch, state

    def _read_files(self, batch: Batch, state: RelayState, *, final: bool, completed: bool, media: bool) -> RelayState:
        """Adds what has files: lines of the event log, and what the job left."""
        state, budget = self._read_file_lines(batch, state, final=final, media=media)
        if final and budget and state == self._state:
            self._checkpoints.add_unannounced(batch, self._copied, budget=budget)
            if not self._copying_checkpoints:
                self._events.announce_progress(batch)
        if self._capturing is not None and not batch.media:
            self._capture(self._capturing, batch, state, final=final, completed=completed)
        if not (batch.media or batch.checkpoints or self._copying_checkpoints):
            state = self._take_left(batch, state, final=final)
        return state

    def _read_file_lines(self, batch: Batch, state: RelayState, *, final: bool, media: bool) -> tuple[RelayState, int]:
        """Returns how many bytes of checkpoints this call may still copy, or 0 if a line waits for its files."""
        budget, room = COPY_LIMIT, MEDIA_LIMIT if media else 0
        end = state.offsets.get(EVENTS, 0)
        start = state.files_at if state.files_at <= end else 0  # the job has rewritten its event log
        for line, at in self._events.file_lines(start, end=end, final=final):
            count, waits = len(self._copied), line is None
            if isinstance(line, Shown):
                if not media:
                    continue
                waits = room <= 0 or bool(batch.checkpoints)  # one batch has no blobs of both to remove
                room -= 0 if waits else self._add_shown(line, batch)
            elif isinstance(line, Remeasured):
                batch.remeasured = line
            elif line is not None and not (waits := bool(batch.media)):
                budget = self._checkpoints.add(line.name, batch, self._copied, budget=budget)
                waits = self._copying_checkpoints or not budget
            if waits:
                return state.with_files_at(at), 0
            if self._first_copied_at is None and len(self._copied) > count:
                self._first_copied_at = at
        return state.with_files_at(end), budget

    def _add_shown(self, line: Shown, batch: Batch) -> int:
        """Adds an item. Returns how much of `MEDIA_LIMIT` it takes."""
        copies, cost = self._shown.add(line, batch)
        self._copied += copies
        return cost

    def _read_curve_files(self, batch: Batch, offsets: dict[str, int], *, final: bool) -> None:
        """Adds what the files of TensorBoard, wandb and MLflow say."""
        curves = self._curve_files.read(self._state.offsets, final=final)
        offsets.update(curves.offsets)
        for source, points in curves.points.items():
            batch.curves[source] = points
        for text in curves.warnings:
            warn(batch, text)

    def _capture(self, capturing: Capturing, batch: Batch, state: RelayState, *, final: bool, completed: bool) -> None:
        """Adds files that the script wrote as checkpoints, once it has nothing else to read if `final`."""
        if final and (self._checkpoints.copying or state != self._state):
            return
        step, taken = state.captured_step or 0, [new.name for new in batch.checkpoints]
        warn_batch = partial(warn, batch)
        for copy in capturing.take(
            COPY_LIMIT, step=step, final=final, completed=completed, taken=taken, warn=warn_batch
        ):
            batch.checkpoints.append(copy.checkpoint)
            self._copied.append(copy)

    def _take_left(self, batch: Batch, state: RelayState, *, final: bool) -> RelayState:
        """Adds files that the job left; if `final`, once there is nothing else to read, and which are left out."""
        before, state = state, self._say_unmatched(batch, state, final=final)
        if state != before:
            return state
        for files in self._left:
            if (final and not self._is_empty(batch, state)) or files.name in state.done:
                continue
            self._copied += (done := files.take(COPY_LIMIT, final=final, warn=partial(warn, batch)))
            batch.artifacts += [files.row(copy) for copy in done]
            if files.unfinished:
                return state
            if final and (text := files.message()) is not None:
                if done:  # it is told once these are stored
                    return state
                warn(batch, text, until=files.until)
            if final and not self._is_empty(batch, state):
                return state.with_done(files.name)
        return state

    def _say_unmatched(self, batch: Batch, state: RelayState, *, final: bool) -> RelayState:
        """Says which patterns match nothing: once while the job runs, and at its end."""
        name = "unmatched_at_end" if final else "unmatched"
        if self._unmatched is None or name in state.done or (final and not self._is_empty(batch, state)):
            return state
        if (text := self._unmatched.text(final=final)) is None:
            return state
        warn(batch, text)
        return state.with_done(name)

    def _timed(self, points: list[MetricPoint]) -> list[MetricPoint]:
        """Returns the points. The time of one that claims to be older than the attempt is the attempt's start."""
        started = rundirs.started_ns(self._run) // 1000 if points else 0
        return [point if point.time >= started else replace(point, time=started) for point in points]

    def _discard_copied(self) -> None:
        copied, self._copied, self._first_copied_at = self._copied, [], None
        for copy in copied:
            copy.discard()
