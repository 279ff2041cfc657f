"""What a program saves as a checkpoint, before it is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
import io
from pathlib import Path
from typing import Any, BinaryIO

from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import STATE_FILE, WEIGHTS_FILE
from torchyard.run.checkpoint_writer import PendingCheckpoint
from torchyard.run.eventlog import EventLog
from torchyard.run.publishing import Content, publish
from torchyard.run.tensors import on_host, write_state

Unfit = Callable[[Mapping[str, Any]], str | None]
"""Gets the state as it will be saved, and returns a reason not to publish it, or None."""


@dataclass(frozen=True)
class Saved:
    """A state, its weights and further files. `warn` tells the job why a checkpoint is not published."""

    manifest: Manifest
    state: dict[str, Any]
    weights: dict[str, Any] | None
    files: Mapping[str, Content]
    unfit: Unfit | None
    warn: Callable[[str], None]
    owned: bool
    """Whether nothing else changes the tensors, so that no copy need be made."""

    def filled(self) -> "Saved":
        """Returns the same with the bytes that the functions in `files` write now."""
        files = {name: item if isinstance(item, bytes) else _written(item) for name, item in self.files.items()}
        return replace(self, files=files)

    def pending(self, folder: Path, events: EventLog | None, *, clone: bool) -> PendingCheckpoint:
        """Returns a checkpoint in `folder` of the tensors as they are now. Writing it appends its event."""
        (state, weights), wait = on_host((self.state, self.weights), clone=clone and not self.owned)
        contents: dict[str, Content] = {STATE_FILE: lambda file: write_state(state, file)}
        if weights is not None:
            contents[WEIGHTS_FILE] = lambda file: _write_weights(weights, file)

        name: str | None = None

        def write() -> None:
            nonlocal name
            wait()
            reason = self.unfit(state) if self.unfit else None
            if reason is not None:
                self.refuse(reason)
                return
            assert events is not None, "one rank writes alone"
            events.flush()  # what was logged before must be on the disk when somebody resumes from it
            name = name or events.free_name(folder, self.name)  # the same for each try
            publish(folder, name, contents | dict(self.files), self.manifest)
            events.checkpoint(name)

        return PendingCheckpoint(self.manifest.step, write)

    def refuse(self, reason: str) -> None:
        """Tells the job why this is not published."""
        self.warn(f"no checkpoint at step {self.manifest.step}: {reason}. The last good one is still the newest")

    @property
    def name(self) -> str:
        """That of its folder, unless an earlier one of the attempt has it."""
        manifest = self.manifest
        at_end = manifest.epoch is not None and manifest.end_of_epoch
        return f"epoch-{manifest.epoch:04d}" if at_end else f"step-{manifest.step:08d}"


def _write_weights(weights: Mapping[str, Any], file: BinaryIO) -> None:
    from torchyard.states.tensorfile import write_tensors

    write_tensors(weights, file)


def _written(content: Callable[[BinaryIO], object]) -> bytes:
    file = io.BytesIO()
    content(file)
    return file.getvalue()
