"""The run context: what a training program tells the service, and asks it.

Outside the service (without `TORCHYARD_RUN_DIR`) it writes nothing, `resume` returns None, and no stop is requested.
"""

import atexit
from collections.abc import Mapping
from itertools import islice
import os
from pathlib import Path
import signal
import threading
import time
from typing import Any, Literal

from torchyard.contract.attempts.events import Message
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import WEIGHTS_FILE, Env, RunDir
from torchyard.contract.wire.text import storable
from torchyard.host.disk import retry_while_unavailable
from torchyard.run import accelerator
from torchyard.run.afterwards import Afterwards
from torchyard.run.agreement import StopAgreement
from torchyard.run.checkpoint_writer import CheckpointWriter
from torchyard.run.eventlog import EventLog
from torchyard.run.given import Given
from torchyard.run.pausing import pause_of
from torchyard.run.profiling import Profiling, profiling_of
from torchyard.run.publishing import Content
from torchyard.run.reactions import Reactions
from torchyard.run.readable import readable
from torchyard.run.saved import Saved, Unfit
from torchyard.run.showing import Showing
from torchyard.run.shownlog import ShownLog
from torchyard.run.tensors import has_safetensors
from torchyard.run.together import Joint, Ranks
from torchyard.run.values import LARGEST_EPOCH, MOST_METRICS, check_names, number, plain, whole, whole_or_none

_MESSAGE_LIMIT = 10_000
FULL_DISK_S = 600.0
"""How long the last checkpoint and the last lines wait for a full disk."""


class Run(Given, Showing):
    """The run context of one rank. Every rank may call every method; only rank 0 writes.

    A thread writes the events, and checkpoints in the background. The next call raises the OSError of that thread. On a
    full disk nothing is raised: data waits in memory, and `flush` and `close` wait for space.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._dir: RunDir | None = None
        self._events: EventLog | None = None
        self._agreement: StopAgreement | None = None
        self._checkpoints = CheckpointWriter(self._warn)
        self._joint: Joint | None = None
        self._warned: set[str] = set()
        self._forked = False
        self._afterwards: Afterwards | None = None
        self._profiling: Profiling | None = None
        self._pause = pause_of(environ)
        if environ.get(Env.RUN_DIR):
            self._dir = RunDir.of_job(Path(environ[Env.RUN_DIR]))
            if self.rank == 0:
                self._events = EventLog(self._dir.events, synchronize=accelerator.synchronize, describes=True)
                self._shown = ShownLog(self._dir.media, self._events, warn=self._warn_once)
            self._agreement = StopAgreement(
                self._dir,
                rank=self.rank,
                world_size=self.world_size,
                local_size=max(1, int(environ.get("LOCAL_WORLD_SIZE", self.world_size))),
                synchronize=accelerator.synchronize,
            )
            self._profiling = profiling_of(environ, self._dir, rank=self.rank, tell=self.message)

    def log(self, values: Mapping[str, Any], *, step: int) -> None:
        """Records metrics of an optimizer step. It never waits for a GPU: a thread fetches tensors later.

        Args:
            values: Numbers or one-element tensors by key, such as `train/loss`. NaN and infinities are kept.
            step: The optimizer step, from 0.

        Raises:
            TypeError: A value is not a number, or `step` is not a whole number.
            ValueError: A name, a value or the step is out of range.

        Example:
            >>> run.log({"train/loss": 0.7, "train/lr": torch.tensor(0.1)}, step=1)
        """
        self._checkpoints.poll()
        if self._events is not None:
            self._events.log(values, step=step)
        self._note(step)

    def progress(
        self, *, step: int, total_steps: int | None = None, epoch: int | None = None, epochs: int | None = None
    ) -> None:
        """Records how far the run is. It is cheap enough for every step.

        Args:
            step: Optimizer steps done.
            total_steps: Steps of the whole run. The service computes the remaining time from it.
            epoch: The current epoch, from 1.
            epochs: Epochs of the whole run.

        Raises:
            TypeError: A value is not a whole number.
            ValueError: A value is out of range.

        Example:
            >>> run.progress(step=5, total_steps=100, epoch=1, epochs=10)
        """
        self._checkpoints.poll()
        if self._events is not None:
            self._events.progress(step=step, total_steps=total_steps, epoch=epoch, epochs=epochs)
        self._note(step, epoch)

    def message(self, text: str, level: Literal["info", "warning", "error"] = "info") -> None:
        """Adds a message to the job's events.

        Args:
            text: At most 10,000 characters.
            level: How important it is.

        Example:
            >>> run.message("the validation set has no cracks", "warning")
        """
        self._checkpoints.poll()
        self._message(text, level)

    def card(self, values: Mapping[str, Any]) -> None:
        """Sets the model card: facts about the model as JSON. The last card replaces earlier ones.

        Args:
            values: At most 200 keys and 64 KiB.

        Raises:
            TypeError: JSON cannot hold a value.
            ValueError: There are too many keys or bytes.

        Example:
            >>> run.card({"parameters": 9098, "samples_per_second": 5120.4})
        """
        self._checkpoints.poll()
        if self._events is not None:
            self._events.card(plain(values))

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
        unfit: Unfit | None = None,
        owned: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        """Saves a checkpoint. Any rank may call it, or rank 0 alone: it is no collective, except with `ranks`.

        The checkpoint is named after `epoch`, or after `step` if the epoch has not ended. A failure keeps earlier
        checkpoints whole. On a full disk a copy waits in host memory, an event says so, and a retry follows every 30 s
        until the next checkpoint replaces it.

        Args:
            state: What `resume` returns: tensors, numbers, texts, lists and dicts. NumPy arrays come back as tensors.
                It is saved as `state.pt`.
            step: Optimizer steps done.
            epoch: Epochs done or begun, from 1.
            metrics: Numbers to choose the best checkpoint by, such as `val/loss`.
            end_of_epoch: Whether `epoch` has ended.
            files: Further files by name: bytes, or a function that writes into an open file. It may be called again.
            weights: Tensors by name, saved as `model.safetensors`.
            card: A model card, as in `card`.
            background: Return after a copy of the tensors to host memory. A thread writes the files; the next call
                raises its error once. It gains nothing in a rank that leaves after `should_stop`.
            unfit: A function that gets the state and returns a reason not to save it, or None.
            owned: Nothing changes the tensors any more, so tensors in host memory are not copied.
            ranks: The ranks of a collective save: each writes its part of `state`, without `weights`.

        Raises:
            OSError: The files cannot be written.
            TypeError: `resume` could not return a value of `state`; the message has the path of its key.
            ValueError: A name, a metric or the step is out of range.

        Example:
            >>> model = torch.nn.Linear(4, 2)
            >>> run.save_checkpoint({"model": model.state_dict()}, step=100, epoch=1, metrics={"val/loss": 0.3})
        """
        self._pause.note(step=step, epoch=epoch, whole=end_of_epoch)
        if self._forked:
            self._warn_once("run.save_checkpoint saves nothing in a forked process: call it in its parent")
        if self._dir is None or (self._events is None and ranks is None):
            return
        metrics = self._few(metrics or {})
        manifest = Manifest(
            step=whole("step", step),
            epoch=whole_or_none("epoch", epoch, most=LARGEST_EPOCH),
            end_of_epoch=end_of_epoch,
            metrics={key: number(key, value) for key, value in metrics.items()},
            files=[],
            card=None if card is None else plain(card),
        )
        if weights is not None and not has_safetensors():
            self._warn_once(f"checkpoints have no {WEIGHTS_FILE}: the package safetensors is not installed")
            weights = None
        saved = Saved(
            manifest,
            readable(state) if ranks is None else dict(state),
            None if weights is None else dict(weights),
            dict(files or {}),
            unfit,
            self._warn,
            owned,
        )
        events, folder = self._events, self._dir.checkpoints
        if ranks is not None:
            saved = self._agreed(saved, ranks, folder)
        if background:
            self._checkpoints.write_in_background(lambda: saved.pending(folder, events, clone=True))
        else:
            self._checkpoints.write(
                lambda: saved.pending(folder, events, clone=False),
                make_copy=lambda: saved.filled().pending(folder, events, clone=True),
            )

    def afterwards(self) -> Afterwards:
        """Returns what this rank may still do after its program has ended. Ends the profile."""
        self.end_profile()
        self._afterwards = self._afterwards or Afterwards(self._dir, self._events, self._agreement)
        return self._afterwards

    @property
    def stop_requested(self) -> bool:
        """Whether this rank knows of a request to stop. Ranks learn of it at different times; `should_stop` agrees on a
        step.
        """
        return self._agreement is not None and self._agreement.requested

    @property
    def told_to_stop(self) -> bool:
        """Whether `stop_requested` or `should_stop` has ever been true."""
        return self._agreement is not None and self._agreement.told

    @property
    def hears_sigterm(self) -> bool:
        """Whether the handler of SIGTERM is the one of this context."""
        return signal.getsignal(signal.SIGTERM) == self._on_sigterm

    def hear_sigterm(self) -> None:
        """Handles SIGTERM again, where a framework has put a handler of its own. Does nothing outside the service."""
        if self._agreement is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def should_stop(self) -> bool:
        """Returns whether to save and leave now. Call it once in each step on every rank.

        All ranks get True at the same step. Ranks without a collective in their step may get it some steps apart. A
        trial of a sweep stops after it has logged the step of its rung: one rank at once, several ranks some steps
        later.

        Returns:
            True if the job is to stop: on cancel, pause, preemption, drain or a rung.

        Example:
            >>> run.should_stop()
            False
        """
        self._checkpoints.poll()
        if self._agreement is not None and self.data is None and self._pause.is_due():
            self._agreement.request()
        return self._agreement is not None and self._agreement.reached()

    def pauses_at(self, *, step: int, epochs: int) -> bool:
        """Returns whether the attempt ends exactly here, at a rung: then save and leave.

        Use it if all ranks do the same steps and all ask. They get True at exactly that step.

        Args:
            step: Optimizer steps done.
            epochs: Epochs that have ended.
        """
        if self._agreement is None or not self._pause.begins_at(step=step, epochs=epochs, wait_s=FULL_DISK_S):
            return False
        self._agreement.told = True
        return True

    def flush(self) -> None:
        """Waits until all logged data is written and the last checkpoint is saved.

        Raises:
            OSError: The disk was full for ten minutes. The checkpoint is lost.

        Example:
            >>> run.flush()
        """
        self._flush(wait_s=FULL_DISK_S)

    def close(self) -> None:
        """Flushes, and writes nothing afterwards. It is called when the program ends."""
        self.end_profile()
        self._close(wait_s=FULL_DISK_S)

    def end_profile(self) -> None:
        """Ends the profile of the job's spec, if there is one. It is called when the program ends without an error."""
        profiling, self._profiling = self._profiling, None
        if profiling is not None:
            profiling.finish()

    def attach(self) -> None:
        """Handles SIGTERM, and flushes when the process exits. A forked child is not a rank: it only logs."""
        if self._agreement is None:
            return
        self.hear_sigterm()
        if self._dir is not None and threading.current_thread() is threading.main_thread():
            Reactions(self._dir, self.rank, self._agreement, self._checkpoints, lambda: self.hears_sigterm).start()
        os.register_at_fork(after_in_child=self._detach)
        # A program that ended without an error has flushed before. Another must not wait for a disk.
        atexit.register(self._close, wait_s=0.0)

    def _agreed(self, saved: Saved, ranks: Ranks, folder: Path) -> Joint:
        """Returns the save that all ranks begin now, once none writes its part of the last one."""
        before = self._joint
        if ranks.rank:
            self._checkpoints.wait()
        self._joint, lacking = Joint.agreed(saved, ranks, lacks=self._checkpoints.keeps_one)
        if before is not None and ranks.rank == 0:
            if lacking:
                before.given_up.set()
            self._checkpoints.wait()
            before.discard(folder)
        return self._joint

    def _few(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Returns as many metrics as a checkpoint has. Raises TypeError and ValueError for a wrong name."""
        check_names(metrics)
        if len(metrics) > MOST_METRICS:
            self._warn_once(f"a checkpoint has {MOST_METRICS} metrics; further ones are not kept in it")
        return dict(islice(metrics.items(), MOST_METRICS))

    def _note(self, step: int, epoch: int | None = None) -> None:
        self._newest_step = step
        if self._profiling is not None:
            self._profiling.at(int(step))
        self._pause.note(step=step, epoch=epoch)

    def _flush(self, *, wait_s: float) -> None:
        self._checkpoints.finish(seconds=wait_s, on_error=self._touch_events)
        if self._events is not None:
            retry_while_unavailable(self._events.flush, seconds=wait_s, on_error=self._touch_events)

    def _close(self, *, wait_s: float) -> None:
        try:
            self._flush(wait_s=wait_s)
        finally:
            events, self._events, self._shown = self._events, None, None
            if events is not None:
                events.close()

    def _touch_events(self, _: OSError) -> None:
        if self._events is not None:
            self._events.touch()

    def _warn(self, text: str) -> None:
        self._message(text, "warning")

    def _message(self, text: str, level: Literal["info", "warning", "error"]) -> None:
        if self._events is not None:
            self._events.message(
                Message(time=time.time_ns() // 1000, level=level, text=storable(text)[:_MESSAGE_LIMIT])
            )

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def _on_sigterm(self, *_: object) -> None:
        if self._agreement is not None:
            self._agreement.request()
        if self._afterwards is not None:
            self._afterwards.stop()

    def _detach(self) -> None:
        """Leaves to a fork what it can do as well: it logs, at once, as no thread runs in it and nothing at its end."""
        folder, self._forked = self._dir, True
        self._agreement = self._dir = self._profiling = self._shown = None
        if self._events is not None and folder is not None:
            self._events = EventLog(folder.events, synchronize=accelerator.synchronize, at_once=True)
        self._checkpoints = CheckpointWriter(self._warn)
        if self.hears_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
