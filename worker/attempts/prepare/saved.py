"""Copies what was saved into the run directory of an attempt: its job's checkpoint, or the weights it starts from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
from typing import Any

from store.worker.records import CAPTURED, BlobStore, CheckpointFacts, resumable
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.wire.text import printable
from torchyard.host import disk
from worker.attempts.notices import Notices
from worker.attempts.records import AttemptRecords
from worker.host.untrusted import remove_checked


@dataclass(frozen=True)
class SavedFiles:
    """What one attempt finds of what was saved before. Each method raises OSError, StaleClaim and NotWanted."""

    run: RunDir
    blobs: BlobStore
    records: AttemptRecords
    notices: Notices
    check_wanted: Callable[[], None]

    def fetch_checkpoint(self) -> CheckpointFacts | None:
        """Copies the newest intact checkpoint into the run directory, and tells the owner which ones were skipped."""
        skipped: list[CheckpointFacts] = []
        fetched: CheckpointFacts | None = None
        for checkpoint in resumable(self.records.checkpoints()):
            files = self.records.with_files(checkpoint).files
            if files and self._copy(files, self.run.resume):
                fetched = checkpoint
                break
            skipped.append(checkpoint)
        step = fetched.step if fetched is not None else 0
        if skipped or step != self.records.start_step:  # the claim assumed that all are intact
            self.records.prepared(step, is_known=fetched is not None and fetched.source is None)
        if skipped:
            names = ", ".join(row.id for row in skipped)
            self.notices.send_once(f"{len(skipped)} damaged checkpoints were skipped: {names}")
        if fetched is not None:
            self.notices.send_once(_describe(fetched), level="info")
        return fetched

    def fetch_initial(self) -> Path:
        """Copies what the spec's `init_from` names into the run directory, and returns the folder.

        Raises ConfigError if it is not kept for the job, and DataError if it is damaged.
        """
        initial = self.records.initial()
        if initial is None or not initial.files:
            raise ConfigError("init_from: its files are not kept for this job: submit the spec again")
        if not self._copy(initial.files, self.run.initial):
            raise DataError(f"init_from: a file of {initial.ref} is missing or damaged in the blob store")
        self.notices.send_once(f"starts from {initial.ref} (step {initial.step})", level="info")
        return self.run.initial

    def _copy(self, files: Sequence[Mapping[str, Any]], folder: Path) -> bool:
        damaged = folder.relative_to(self.run.root).parts
        remove_checked(self.run.root, *damaged, check=self.check_wanted)
        disk.require_free_space(folder.parent, sum(file["size"] for file in files))
        for file in files:
            target = folder / file["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.blobs.copy_out(file["sha256"], target, check=self.check_wanted):
                return False
        return True


def _describe(checkpoint: CheckpointFacts) -> str:
    """A captured one is named by its path: whether the program reads it nobody knows, nor its step."""
    if checkpoint.source != CAPTURED:
        return f"resumes from checkpoint {checkpoint.id} (step {checkpoint.step})"
    path = os.path.commonpath([str(file["path"]) for file in checkpoint.files])
    return f"TORCHYARD_RESUME_FROM has checkpoint {checkpoint.id}: {printable(path)}"
