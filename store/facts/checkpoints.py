"""What jobs leave, and what users upload. Times are microseconds since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.contract import archives
from torchyard.contract.errors import NotFound
from torchyard.contract.rundir import ARCHIVE_SUFFIX, INDEX_FILE, STATE_FILE, is_in_parts

CAPTURED = "captured"
"""The source of a checkpoint that is a file which the script wrote by itself."""
_CAPTURED_PREFIX = "captured-"
ARCHIVE = f"state{ARCHIVE_SUFFIX}"
"""The path in the entry of an archive of all files."""


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A checkpoint that is listed."""

    id: str
    attempt: int
    name: str
    epoch: int | None
    end_of_epoch: bool
    step: int
    metrics: Mapping[str, Any]
    """Non-finite values are strings, because JSON has no numbers for them."""
    monitored: float | None
    """The value that decides about `best`."""
    files: Sequence[Mapping[str, Any]]
    """`{path, size, sha256}` each; the index of one in parts has `archive`, the sha256 of the archive of all."""
    source: str | None
    """None if the script published it."""
    saved_at: int
    """When it was saved, in nanoseconds. `store.rows.checkpoint_order` says what it decides."""
    damaged: bool
    """Whether it is not whole: it has no alias, and no job goes on from it."""
    remeasured: Mapping[str, Any] | None
    """Its metrics as they were measured again in one process, after training; None if they were not."""
    created_at: int
    aliases: Sequence[str] = ()
    """`best`, `latest`, `epoch-N` and `step-N`, those that name it now."""

    def file(self, path: str) -> Mapping[str, Any]:
        """Returns the entry of one file. Raises NotFound."""
        return entry_of(self.files, path, of=f"checkpoint {self.id}")

    @property
    def main_file(self) -> Mapping[str, Any]:
        """The entry of what is sent if no file is named: `state.pt`, that of a captured one, or an archive of all."""
        if self.source == CAPTURED and self.files:
            return self.files[0]
        return archive_of(self.files) or self.file(STATE_FILE)


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """A file that a job left."""

    id: str
    path: str
    attempt: int
    size: int
    sha256: str
    created_at: int


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """A complete bundle of one user. `size`: bytes of its tar."""

    owner: str
    sha256: str
    size: int
    files: int
    created_at: int


def captured_name(file: str, *, modified_ns: int, size: int) -> str:
    """Returns the name of a captured checkpoint: another one when the file was replaced, the same after a restart.

    `file`: a digest of its path.
    """
    return f"{_CAPTURED_PREFIX}{file}-{modified_ns:x}-{size:x}"


def captured_file(name: str) -> str:
    """Returns which file a captured checkpoint is of, by its name."""
    return name.removeprefix(_CAPTURED_PREFIX).split("-")[0]


def archive_of(files: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Returns the entry of the archive of a checkpoint in parts; None for one with a `state.pt`."""
    if not is_in_parts(entry["path"] for entry in files):
        return None
    sha256 = next(entry["archive"] for entry in files if entry["path"] == INDEX_FILE)
    size = archives.size_of((entry["path"], entry["size"]) for entry in files)
    return {"path": ARCHIVE, "size": size, "sha256": sha256}


def entry_of(files: Sequence[Mapping[str, Any]], path: str, *, of: str) -> Mapping[str, Any]:
    """Returns the entry of the file with this path. `of`: what has the files. Raises NotFound."""
    for entry in files:
        if entry["path"] == path:
            return entry
    raise NotFound(f"{of} has no file {path[:200]!r}")
