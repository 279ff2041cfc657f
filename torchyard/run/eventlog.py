"""Appends lines to `events.jsonl`: values stay on their device until a thread fetches and writes them."""

from collections.abc import Callable, Mapping
import contextlib
from dataclasses import dataclass
import os
from pathlib import Path
import threading
import time
from typing import Any, TypeAlias

from torchyard.contract.attempts.events import (
    Card,
    CheckpointSaved,
    Line,
    Message,
    Metric,
    Packages,
    Progress,
    Remeasured,
    Shown,
)
from torchyard.host.disk import FULL
from torchyard.host.failpoints import failpoint
from torchyard.run.installed import installed
from torchyard.run.values import LARGEST_EPOCH, MOST_METRICS, check_names, number, whole, whole_or_none

FLUSH_S = 0.5
FLUSH_LINES = 500
HELD_BYTES = 16 * 1024 * 1024
"""Bytes of lines that wait in memory while the disk is full. With more of them the OSError is raised."""


@dataclass(frozen=True)
class _Values:
    """A metric line that is not made yet: its tensors are still on their device."""

    time: int
    step: int
    values: dict[str, Any]


_Line: TypeAlias = _Values | Message | CheckpointSaved | Card | Remeasured | Shown


class EventLog:
    """Appends whole lines to one file. A thread writes them within FLUSH_S seconds, or, if the disk is full, as soon as
    it has space.

    `synchronize` waits for this rank's device. `describes`: what is installed goes behind the first step that is
    written. `at_once`: each line is written when it is added, without a thread. Every method raises the OSError that
    the thread met, if any.
    """

    def __init__(
        self, path: Path, *, synchronize: Callable[[], None], describes: bool = False, at_once: bool = False
    ) -> None:
        self._path = path
        self._at_once = at_once
        self._checkpoints: set[str] = set()
        """The names of those that were added."""
        self._synchronize = synchronize
        self._describes = describes
        self._file: int | None = None
        self._pending: list[_Line] = []
        self._progress: dict[str, int | None] | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._unwritten = bytearray()

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Adds numbers and one-element tensors, copied as they are now without waiting for their device.

        Raises TypeError and ValueError for a name, a value or a step that cannot be recorded.
        """
        check_names(values)
        step = whole("step", step)
        taken = [(key, _snapshot(key, value)) for key, value in values.items()]
        for begin in range(0, len(taken), MOST_METRICS):
            self._add(_Values(_now(), step, dict(taken[begin : begin + MOST_METRICS])))

    def progress(
        self, *, step: int, total_steps: int | None = None, epoch: int | None = None, epochs: int | None = None
    ) -> None:
        """Adds how far the run is. Of several calls between two writes, only the last one is written.

        Raises TypeError and ValueError for what is no whole number.
        """
        # The thread makes the line: most calls never become one.
        latest = {
            "time": _now(),
            "step": whole("step", step),
            "total_steps": whole_or_none("total_steps", total_steps),
            "epoch": whole_or_none("epoch", epoch, most=LARGEST_EPOCH),
            "epochs": whole_or_none("epochs", epochs, most=LARGEST_EPOCH),
        }
        with self._lock:
            self._progress = latest
        self._check()
        if self._at_once:
            self._write(patient=True)

    def message(self, line: Message) -> None:
        self._add(line)

    def card(self, values: Mapping[str, Any]) -> None:
        """Adds a card. Raises ValueError for values that a card cannot hold."""
        self._add(Card(time=_now(), values=dict(values)))

    def free_name(self, folder: Path, name: str) -> str:
        """Returns the name for a checkpoint in `folder`: `name`, with the time behind it if an earlier one has had it.

        The folder of an earlier one may have been removed, but its name stays its own.
        """
        is_free = name not in self._checkpoints and not (folder / name).exists()
        return name if is_free else f"{name}-{time.time_ns():x}"

    def checkpoint(self, name: str) -> None:
        """Adds a checkpoint and writes at once, or, if the disk is full, as soon as it has space."""
        self._checkpoints.add(name)
        self._add(CheckpointSaved(time=_now(), name=name))
        self._write(patient=True)

    def remeasured(self, name: str, metrics: Mapping[str, float], *, attempt: int | None) -> None:
        """Adds what a checkpoint has measured again; `attempt`: the one that saved it, if not this one."""
        self._add(Remeasured(time=_now(), name=name, attempt=attempt, metrics=dict(metrics)))

    def shown(self, line: Shown) -> None:
        """Adds an item, whose files are there."""
        self._add(line)

    def flush(self) -> None:
        """Returns when all added lines are in the file."""
        self._check()
        self._write()

    def touch(self) -> None:
        """Sets the file's times, which works on a full disk: the supervisor sees progress, and not a hang.

        Many file systems set them themselves when they refuse a write.
        """
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self.flush()
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _add(self, line: _Line) -> None:
        self._check()
        with self._lock:
            self._pending.append(line)
            full = len(self._pending) >= FLUSH_LINES
        if full or self._at_once:
            self._write(patient=True)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._thread is None and not self._at_once and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="torchyard events", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(FLUSH_S):
            try:
                self._write(patient=True)
            except Exception as error:  # noqa: BLE001 raised by the next call
                self._failure = error
                return

    def _write(self, *, patient: bool = False) -> None:
        """Writes all lines. With `patient`, some lines may wait for the next write if the disk is full."""
        with self._writing:
            with self._lock:
                pending, self._pending = self._pending, []
                progress, self._progress = self._progress, None
            lines = [self._metric(item) if isinstance(item, _Values) else item for item in pending]
            everything: list[Line] = [*lines, *([Progress.from_dict(progress)] if progress else [])]
            if self._describes and any(isinstance(line, Metric | Progress) for line in everything):
                self._describes = False
                everything.append(Packages(time=_now(), values=dict(installed())))
            self._unwritten += "".join(f"{line.to_json()}\n" for line in everything).encode()
            try:
                self._append()
            except OSError as error:
                if not patient or error.errno not in FULL or len(self._unwritten) > HELD_BYTES:
                    raise
                self.touch()

    def _metric(self, item: _Values) -> Metric:
        if any(not isinstance(value, float) for value in item.values.values()):
            self._synchronize()  # a copy may have been made on a stream that is not this thread's
        return Metric(time=item.time, step=item.step, values={key: float(value) for key, value in item.values.items()})

    def _append(self) -> None:
        if not self._unwritten:
            return
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        failpoint("events.append.before")
        while self._unwritten:
            del self._unwritten[: os.write(self._file, self._unwritten)]
        failpoint("events.append.after")


def _now() -> int:
    return time.time_ns() // 1000


def _snapshot(key: str, value: Any) -> Any:
    if not hasattr(value, "detach"):
        return number(key, value)
    if value.numel() != 1:
        raise ValueError(f"{key}: a tensor of {value.numel()} elements is not a number")
    tensor = value.detach()
    return float(tensor) if tensor.device.type == "cpu" else tensor.clone()
