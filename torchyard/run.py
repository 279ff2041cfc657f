"""The in-job context: what a training script asks of the service and tells it.

Outside the service (no `TORCHYARD_RUN_DIR`) everything here does nothing harmful: nothing is written, `resume` has
nothing, nobody asks to stop.
"""

import atexit
from collections.abc import Mapping
from functools import cached_property
import json
import os
from pathlib import Path
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from torchyard.agreement import StopAgreement
from torchyard.eventlog import EventLog
from torchyard.events import Message
from torchyard.publishing import Content, publish
from torchyard.rundir import STATE_FILE, WEIGHTS_FILE, Env, RunDir

if TYPE_CHECKING:
    import torch

_MESSAGE_LIMIT = 10_000

_current: "Run | None" = None


def init() -> "Run":
    """The context of this process: the same one at every call.

    In the service it installs a handler for SIGTERM, which `should_stop` then reports. It does not touch the process
    group.
    """
    global _current  # noqa: PLW0603 a process is one rank of one run
    if _current is None:
        _current = Run(os.environ)
        _current.attach()
    return _current


class Run:
    """One rank's view of its attempt. Every rank may call everything; rank 0 alone writes.

    Events are written by a thread: an OSError that it meets is raised by the next call.
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
        if environ.get(Env.RUN_DIR):
            self._dir = RunDir(Path(environ[Env.RUN_DIR]))
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
        if self._events is not None:
            self._events.log(values, step=step)

    def progress(
        self, *, step: int, total_steps: int | None = None, epoch: int | None = None, epochs: int | None = None
    ) -> None:
        """How far the run is. Cheap enough for every step; epochs count from 1."""
        if self._events is not None:
            self._events.progress(step=step, total_steps=total_steps, epoch=epoch, epochs=epochs)

    def message(self, text: str, level: Literal["info", "warning", "error"] = "info") -> None:
        """A sentence for the people who watch the job."""
        if self._events is not None:
            self._events.message(Message(time=time.time_ns() // 1000, level=level, text=text[:_MESSAGE_LIMIT]))

    def card(self, values: Mapping[str, Any]) -> None:
        """What this run is, as JSON: its model's size, its speed, its data. Of several cards the last one counts.

        Raises TypeError and ValueError for what JSON cannot hold, or more than 200 keys or 64 KiB.
        """
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
    ) -> None:
        """Publishes a checkpoint: `state` as `state.pt`, and where given `weights` (a dict of tensors) as
        `model.safetensors`, and further `files` (bytes, or a function that writes to the file that it is given).

        `state` should load with `weights_only=True`, or `resume` cannot read it. Not a collective: every rank or only
        rank 0 may call it. The checkpoint is named after `epoch`, or after `step` where `epoch` is None or not at its
        end; a name that is there already stays as it is. Raises OSError and leaves earlier ones whole if it fails.
        """
        if self._dir is None or self._events is None:
            return
        self._events.flush()
        name = f"epoch-{epoch:04d}" if epoch is not None and end_of_epoch else f"step-{step:08d}"
        contents: dict[str, Content] = {STATE_FILE: lambda file: _torch_save(state, file)}
        if weights is not None:
            contents[WEIGHTS_FILE] = lambda file: file.write(_safetensors(weights))
        publish(
            self._dir.checkpoints,
            name,
            contents | dict(files or {}),
            step=step,
            epoch=epoch,
            end_of_epoch=end_of_epoch,
            metrics={key: float(value) for key, value in (metrics or {}).items()},
        )
        self._events.checkpoint(name)

    @property
    def stop_requested(self) -> bool:
        """Whether a stop was asked for, as far as this rank knows: the ranks learn it at different moments."""
        return self._agreement is not None and self._agreement.requested

    def should_stop(self) -> bool:
        """Whether to save and leave now. Call it once each step, on every rank: all get True at the same step.

        Ranks that no collective of the step holds together may get it some steps apart.
        """
        return self._agreement is not None and self._agreement.reached()

    def close(self) -> None:
        """Writes what still waits. Happens by itself when the process exits, but then cannot raise."""
        if self._events is not None:
            events, self._events = self._events, None
            events.close()

    def attach(self) -> None:
        """Listens for SIGTERM, and writes what still waits when the process exits. A forked child is no rank."""
        if self._agreement is None:
            return
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
        os.register_at_fork(after_in_child=self._detach)
        atexit.register(self.close)

    def _on_sigterm(self, *_: object) -> None:
        if self._agreement is not None:
            self._agreement.request()

    def _detach(self) -> None:
        self._events = self._agreement = self._dir = None
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as JSON reads them back: with lists for tuples."""
    return json.loads(json.dumps(dict(values)))


def _synchronize() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _torch_save(state: Mapping[str, Any], file: Any) -> None:
    import torch

    torch.save(dict(state), file)


def _safetensors(weights: Mapping[str, Any]) -> bytes:
    from safetensors.torch import save

    tensors: dict[str, Any] = {}
    seen: set[int] = set()
    for name, value in weights.items():
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        # The format holds no two names for one memory.
        tensors[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return save(tensors)
