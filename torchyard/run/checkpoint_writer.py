"""Writes the checkpoints of one rank, one at a time. A checkpoint that does not fit on the disk is kept and retried."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
import threading
import time

from torchyard.host.disk import FULL, retry_while_unavailable

RETRY_S = 30.0
"""Time between two attempts while the program trains on."""
LAST_RETRY_S = 5.0
"""Time between two attempts at the end. Each may fill the disk, on which others write too."""


@dataclass(frozen=True)
class PendingCheckpoint:
    """A checkpoint that is not on the disk yet."""

    step: int
    write: Callable[[], None]
    """Writes it. Leaves nothing behind if it raises, and may be called again."""


class CheckpointWriter:
    """Writes checkpoints, in a thread or at once.

    A full disk is not an error: the checkpoint waits in memory, until there is space or the next one replaces it.
    `warn` is called once for each checkpoint that waits. Every other error is raised: at once, or by the next call if
    the thread met it.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torchyard checkpoint")
        self._writing: tuple[PendingCheckpoint, Future[None]] | None = None
        self._waiting: PendingCheckpoint | None = None
        self._next_try = 0.0
        self._disk = threading.Lock()
        """Held while a checkpoint is written."""

    def write_in_background(self, make: Callable[[], PendingCheckpoint]) -> None:
        """Makes a checkpoint and lets a thread write it. Drops the checkpoint that waits, if any."""
        self._finish_writing()
        self._waiting = None  # before there is another one in memory
        checkpoint = make()
        self._writing = checkpoint, self._thread.submit(self._write, checkpoint)

    def write(self, make: Callable[[], PendingCheckpoint], *, make_copy: Callable[[], PendingCheckpoint]) -> None:
        """Makes a checkpoint and writes it. Drops the checkpoint that waits, if any.

        `make_copy` makes the one that waits if the disk is full: nothing changes its contents any more.
        """
        self._finish_writing()
        self._waiting = None
        try:
            self._write(make())
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._keep(make_copy(), error)

    def wait(self) -> None:
        """Waits for the checkpoint that is being written now, if any. Raises what the thread has met."""
        self._finish_writing()

    @property
    def keeps_one(self) -> bool:
        """Whether a checkpoint waits for space on the disk."""
        return self._waiting is not None

    def poll(self) -> None:
        """Raises what the thread has met, and starts a retry that is due. Never waits."""
        if self._writing is not None:
            if self._writing[1].done():
                self._finish_writing()
        elif self._waiting is not None and time.monotonic() >= self._next_try:
            self._writing = self._waiting, self._thread.submit(self._write, self._waiting)

    def finish(self, *, seconds: float, on_error: Callable[[OSError], object]) -> None:
        """Returns when the newest checkpoint is on the disk.

        Raises the OSError of a disk that is still full after `seconds`, and drops the checkpoint. `on_error` is called
        with each such error before.
        """
        self._finish_writing()
        last, self._waiting = self._waiting, None
        if last is not None:
            retry_while_unavailable(lambda: self._write(last), seconds=seconds, on_error=on_error, pause_s=LAST_RETRY_S)

    def settle(self, seconds: float) -> None:
        """Waits for the checkpoint that is being written now, if any, at most so long. Any thread may call it."""
        if self._disk.acquire(timeout=seconds):
            self._disk.release()

    def _write(self, checkpoint: PendingCheckpoint) -> None:
        with self._disk:
            checkpoint.write()

    def _finish_writing(self) -> None:
        """Waits for the thread."""
        if self._writing is None:
            return
        (checkpoint, future), self._writing = self._writing, None
        retried, self._waiting = checkpoint is self._waiting, None
        try:
            future.result()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._keep(checkpoint, error, retried=retried)

    def _keep(self, checkpoint: PendingCheckpoint, error: OSError, *, retried: bool = False) -> None:
        self._waiting = checkpoint
        self._next_try = time.monotonic() + RETRY_S
        if not retried:
            self._warn(
                f"the checkpoint of step {checkpoint.step} cannot be written: {error}. Training goes on, and earlier "
                "checkpoints are whole. This one waits in memory until there is space, or the next one replaces it"
            )
