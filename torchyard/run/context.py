"""The in-job context: what a training script asks of the service and tells it.

Outside the service (no `TORCHYARD_RUN_DIR`) everything here does nothing harmful: nothing is written, `resume` has
nothing, nobody asks to stop.
"""

import atexit
from collections.abc import Callable, Mapping
from functools import cached_property
import io
import json
import os
from pathlib import Path
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from torchyard.contract.disk import insist
from torchyard.contract.events import Message
from torchyard.contract.records import Manifest
from torchyard.contract.rundir import STATE_FILE, WEIGHTS_FILE, Env, RunDir
from torchyard.run.agreement import StopAgreement
from torchyard.run.eventlog import EventLog
from torchyard.run.publishing import Content, publish
from torchyard.run.saving import Saving, Unsaved
from torchyard.run.tensors import has_safetensors, on_host, safetensors, write_state

if TYPE_CHECKING:
    import torch

_MESSAGE_LIMIT = 10_000
_ROOM_S = 600.0  # for a full disk to have room for the last checkpoint and the last lines

_current: "Run | None" = None


def init() -> "Run":
    """The context of this process: the same one at every call.

    In the service it installs a handler for SIGTERM, which `should_stop` then reports: a program that goes on without
    asking, and ends well within its grace, has finished. It does not touch the process group.
    """
    global _current  # noqa: PLW0603 a process is one rank of one run
    if _current is None:
        _current = Run(os.environ)
        _current.attach()
    return _current


def flush() -> None:
    """Writes what the context of this process, if there is one, still has to write. Raises what that meets."""
    if _current is not None:
        _current.flush()


def has_finished(run: RunDir) -> bool:
    """Whether this program, which ends well now, has done its work: False where it may have left it for a stop.

    One that handles SIGTERM by itself may always have been told by that.
    """
    if _current is not None and _current.told_to_stop:
        return False
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        return not os.path.lexists(run.stop)
    return _current is not None and _current.hears_sigterm


class Run:
    """One rank's view of its attempt. Every rank may call everything; rank 0 alone writes.

    Events are written by a thread, and so are checkpoints if asked for: an OSError that they meet is raised by the
    next call. A full disk is none: what it refuses waits in memory, and `flush` and `close` wait for room.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.rank = int(environ.get("RANK", "0"))
        self.local_rank = int(environ.get("LOCAL_RANK", "0"))
        self.world_size = int(environ.get("WORLD_SIZE", "1"))
        self.data: str | None = environ.get(Env.DATA)
        """The data source: `digits`, or an absolute path; None for a script."""
        self.weights: str | None = environ.get(Env.WEIGHTS)
        """The absolute path of the weights to start from; None where those are no file."""
        self._config_path = environ.get(Env.CONFIG)
        self._resume_from = environ.get(Env.RESUME_FROM)
        self._dir: RunDir | None = None
        self._events: EventLog | None = None
        self._agreement: StopAgreement | None = None
        self._saving = Saving(self._tell)
        self._told: set[str] = set()
        if environ.get(Env.RUN_DIR):
            self._dir = RunDir.of_job(Path(environ[Env.RUN_DIR]))
            self._events = EventLog(self._dir.events, synchronize=_synchronize) if self.rank == 0 else None
            self._agreement = StopAgreement(
                self._dir, rank=self.rank, world_size=self.world_size, synchronize=_synchronize
            )

    @cached_property
    def config(self) -> dict[str, Any]:
        """The job's resolved configuration; empty outside the service."""
        return json.loads(Path(self._config_path).read_bytes()) if self._config_path else {}

    @cached_property
    def device(self) -> "torch.device":
        """This rank's device: its GPU where there is one, else the CPU."""
        import torch

        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Records numbers or one-element tensors, measured at optimizer step `step`. NaN and infinities are kept.

        A tensor is copied on its device, and fetched later by a thread: this never waits for a GPU. Raises TypeError
        and ValueError for what is no number.
        """
        self._saving.look()
        if self._events is not None:
            self._events.log(values, step=step)

    def progress(
        self, *, step: int, total_steps: int | None = None, epoch: int | None = None, epochs: int | None = None
    ) -> None:
        """How far the run is. Cheap enough for every step; epochs count from 1."""
        self._saving.look()
        if self._events is not None:
            self._events.progress(step=step, total_steps=total_steps, epoch=epoch, epochs=epochs)

    def message(self, text: str, level: Literal["info", "warning", "error"] = "info") -> None:
        """A sentence for the people who watch the job."""
        self._saving.look()
        self._tell(text, level)

    def card(self, values: Mapping[str, Any]) -> None:
        """What this run is, as JSON: its model's size, its speed, its data. Of several cards the last one counts.

        Raises TypeError and ValueError for what JSON cannot hold, or more than 200 keys or 64 KiB.
        """
        self._saving.look()
        if self._events is not None:
            self._events.card(_plain(values))

    def resume(self) -> dict[str, Any] | None:
        """The state that an earlier attempt saved, its tensors on the CPU; None on a fresh start.

        Raises OSError, and what `torch.load` raises, where it cannot be read.
        """
        if not self._resume_from:
            return None
        import torch

        return torch.load(Path(self._resume_from) / STATE_FILE, map_location="cpu", weights_only=True)

    def save_checkpoint(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        epoch: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        end_of_epoch: bool = True,
        files: Mapping[str, Content] | None = None,
        weights: Mapping[str, Any] | None = None,
        card: Mapping[str, Any] | None = None,
        background: bool = False,
        unfit: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        """Publishes a checkpoint: `state` as `state.pt`, and where given `weights` (a dict of tensors) as
        `model.safetensors`, and further `files` (bytes, or a function that writes to the file that it is given).
        `card` goes into its manifest, as `card` takes it.

        `state` should load with `weights_only=True`, or `resume` cannot read it; its tensors are saved on the CPU. Not
        a collective: every rank or only rank 0 may call it. The checkpoint is named after `epoch`, or after `step`
        where `epoch` is None or not at its end; a name that is there already stays as it is. Raises OSError and leaves
        earlier ones whole if it fails.

        In the `background`, tensors are copied to host memory at once and a thread does the rest, functions of `files`
        included: one checkpoint at a time, and what it raises, the next call here raises, once. A rank that leaves
        after `should_stop` has no use for that.

        Where the disk is full this raises nothing: the checkpoint, as it was saved, waits in host memory, the job is
        told, and it is tried again every 30 s until the next one takes its place. The last one takes as long as
        `flush` does. Functions of `files` may be called more than once for it.

        Whoever writes it asks `unfit` about the state as it is saved, before anything is written. Where that answers
        a reason, nothing is published, the newest checkpoint stays the newest, and the job is told.
        """
        if self._dir is None or self._events is None:
            return
        manifest = Manifest(
            step=step,
            epoch=epoch,
            end_of_epoch=end_of_epoch,
            metrics={key: float(value) for key, value in (metrics or {}).items()},
            files=[],
            card=None if card is None else _plain(card),
        )
        if weights is not None and not has_safetensors():
            self._tell_once(f"checkpoints have no {WEIGHTS_FILE}: the package safetensors is not installed")
            weights = None
        contents = dict(files or {})
        if background:
            self._saving.begin(lambda: self._unsaved(manifest, state, weights, contents, unfit=unfit, clone=True))
        else:
            self._saving.write(
                lambda: self._unsaved(manifest, state, weights, contents, unfit=unfit, clone=False),
                kept=lambda: self._unsaved(manifest, state, weights, _filled(contents), unfit=unfit, clone=True),
            )

    @property
    def stop_requested(self) -> bool:
        """Whether a stop was asked for, as far as this rank knows: the ranks learn it at different moments."""
        return self._agreement is not None and self._agreement.requested

    @property
    def told_to_stop(self) -> bool:
        """Whether `stop_requested` or `should_stop` has ever been true."""
        return self._agreement is not None and self._agreement.told

    @property
    def hears_sigterm(self) -> bool:
        """Whether the handler of SIGTERM is this context's."""
        return signal.getsignal(signal.SIGTERM) == self._on_sigterm

    def should_stop(self) -> bool:
        """Whether to save and leave now. Call it once each step, on every rank: all get True at the same step.

        Ranks that no collective of the step holds together may get it some steps apart.
        """
        self._saving.look()
        return self._agreement is not None and self._agreement.reached()

    def flush(self) -> None:
        """Returns when all that was logged is written, and what was saved last is published.

        Waits ten minutes for a full disk to have room. Raises its OSError then; that checkpoint is given up.
        """
        self._flush(room_s=_ROOM_S)

    def close(self) -> None:
        """Writes what still waits, as `flush` does, and nothing after it. Happens by itself when the program ends."""
        self._close(room_s=_ROOM_S)

    def attach(self) -> None:
        """Listens for SIGTERM, and writes what still waits when the process exits. A forked child is no rank."""
        if self._agreement is None:
            return
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
        os.register_at_fork(after_in_child=self._detach)
        # Who ends well has flushed before; an error is not held up.
        atexit.register(self._close, room_s=0.0)

    def _flush(self, *, room_s: float) -> None:
        self._saving.finish(seconds=room_s, on_refusal=self._show_life)
        if self._events is not None:
            insist(self._events.flush, seconds=room_s, on_refusal=self._show_life)

    def _close(self, *, room_s: float) -> None:
        try:
            self._flush(room_s=room_s)
        finally:
            events, self._events = self._events, None
            if events is not None:
                events.close()

    def _show_life(self, _: OSError) -> None:
        if self._events is not None:
            self._events.touch()

    def _tell(self, text: str, level: Literal["info", "warning", "error"] = "warning") -> None:
        if self._events is not None:
            self._events.message(Message(time=time.time_ns() // 1000, level=level, text=text[:_MESSAGE_LIMIT]))

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def _unsaved(
        self,
        manifest: Manifest,
        state: Mapping[str, Any],
        weights: Mapping[str, Any] | None,
        files: Mapping[str, Content],
        *,
        unfit: Callable[[Mapping[str, Any]], str | None] | None,
        clone: bool,
    ) -> Unsaved:
        """A checkpoint of `state` and `weights` as they are now. Whoever writes it tells of it, too."""
        assert self._dir is not None
        assert self._events is not None
        folder, events = self._dir.checkpoints, self._events
        at_end = manifest.epoch is not None and manifest.end_of_epoch
        name = f"epoch-{manifest.epoch:04d}" if at_end else f"step-{manifest.step:08d}"
        (kept, kept_weights), wait = on_host((dict(state), weights and dict(weights)), clone=clone)
        contents: dict[str, Content] = {STATE_FILE: lambda file: write_state(kept, file)}
        if kept_weights is not None:
            contents[WEIGHTS_FILE] = lambda file: file.write(safetensors(kept_weights))

        def write() -> None:
            wait()
            reason = unfit(kept) if unfit else None
            if reason is not None:
                self._tell(f"no checkpoint at step {manifest.step}: {reason}. The last good one stays the newest")
                return
            events.flush()  # what was logged before is on the disk, whoever resumes from it
            publish(folder, name, contents | dict(files), manifest)
            events.checkpoint(name)

        return Unsaved(manifest.step, write)

    def _on_sigterm(self, *_: object) -> None:
        if self._agreement is not None:
            self._agreement.request()

    def _detach(self) -> None:
        self._events = self._agreement = self._dir = None
        self._saving = Saving(self._tell)
        if self.hears_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as JSON reads them back: with lists for tuples."""
    return json.loads(json.dumps(dict(values)))


def _filled(files: Mapping[str, Content]) -> dict[str, Content]:
    """`files` as their functions write them now."""
    return {name: content if isinstance(content, bytes) else _written(content) for name, content in files.items()}


def _written(content: Callable[[BinaryIO], object]) -> bytes:
    file = io.BytesIO()
    content(file)
    return file.getvalue()


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
