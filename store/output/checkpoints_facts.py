"""Checkpoints and artifacts that are stored, the files of which they are, and the order of checkpoints.

Times are microseconds since the epoch. The order of a job's checkpoints is by attempt, and then by the time of saving.
Of two that were saved at the same time, the one that was stored later is newer. A job goes on from the newest whole
one; where its program has published some, from the newest of those. `store.output.checkpoints` says the same in
SQL, and nothing else decides either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from torchyard.contract.attempts.rundir import ARCHIVE_SUFFIX, STATE_FILE
from torchyard.contract.errors import NotFound
from torchyard.contract.files import archives
from torchyard.contract.files.paths import MOST_SHOWN_FILES_BYTES, digest_of, folder_of

CAPTURED = "captured"
"""The source of a checkpoint that is a file, or a folder, which the script wrote by itself."""
_CAPTURED_PREFIX = "captured-"
ARCHIVE = f"state{ARCHIVE_SUFFIX}"
"""The path in the entry of the tar of all files."""

Files = Sequence[Mapping[str, Any]]
"""`{path, size, sha256}` each."""


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
    files: Files
    """Empty in a row of a list that has `files_omitted`."""
    files_bytes: int | None
    """Bytes of `files` as JSON; None for a row of an older version."""
    sent: Mapping[str, Any] | None
    """What `sent_of` says of its files; None for a row of an older version."""
    source: str | None
    """None if the script published it."""
    saved_at: int
    """When it was saved, in nanoseconds. `store.output.checkpoints` says what it decides."""
    damaged: bool
    """Whether it is not whole: it has no alias, and no job goes on from it."""
    remeasured: Mapping[str, Any] | None
    """Its metrics as they were measured again in one process, after training; None if they were not."""
    created_at: datetime
    aliases: Sequence[str] = ()
    """`best`, `latest`, `epoch-N` and `step-N`, those that name it now."""

    def file(self, path: str) -> Mapping[str, Any]:
        """Returns the entry of one file. Raises NotFound."""
        return entry_of(self.files, path, of=f"checkpoint {self.id}")

    @property
    def main_file(self) -> Mapping[str, Any]:
        """The entry of what is sent if no file is named. Raises NotFound if there is nothing."""
        return self.sent or sent_of(self.files, of=f"checkpoint {self.id}")

    @property
    def files_omitted(self) -> bool:
        """Whether its files are too long for a row of a list, which has none of them."""
        return are_omitted(self.files, self.files_bytes)


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """A file that a job left."""

    id: str
    path: str
    """Below `artifacts`, or below the working folder."""
    attempt: int
    size: int
    sha256: str
    created_at: int
    modified_ns: int | None
    """When it was modified, by the clock of its host; None if that is not known."""
    kept: bool = False
    """Whether it is of the working folder."""


def captured_name(file: str, *, modified_ns: int, size: int, number: int | None = None) -> str:
    """Returns the name of a captured checkpoint: another one when the file was replaced, the same after a restart.

    `file`: a digest of its path; `number`: of a folder, what changes with any of its files.
    """
    name = f"{_CAPTURED_PREFIX}{file}-{modified_ns:x}-{size:x}"
    return name if number is None else f"{name}-{number:x}"


def captured_number(name: str) -> int | None:
    """Returns what `captured_name` was given of a folder; None for the checkpoint of a file."""
    parts = name.split("-")
    return int(parts[4], 16) if len(parts) == 5 else None


def captured_file(name: str) -> str:
    """Returns which file a captured checkpoint is of, by its name."""
    return name.removeprefix(_CAPTURED_PREFIX).split("-")[0]


def sent_of(files: Files, *, of: str) -> Mapping[str, Any]:
    """Returns the entry of what is sent if no file is named: the only one, `state.pt`, or a tar of all.

    That of a tar has `folder` besides, the path of the folder that has them all, which may be empty, and `files`, their
    number. Its `sha256` is the digest of the list of files. `of`: what has the files. Raises NotFound for none.
    """
    if len(files) < 2 or any(entry["path"] == STATE_FILE for entry in files):
        return files[0] if len(files) == 1 else entry_of(files, STATE_FILE, of=of)
    return {
        "path": ARCHIVE,
        "size": archives.size_of((entry["path"], entry["size"]) for entry in files),
        "sha256": digest_of((entry["path"], entry["sha256"]) for entry in files),
        "folder": folder_of(entry["path"] for entry in files),
        "files": len(files),
    }


def path_written(sent: Mapping[str, Any]) -> str:
    """Returns the path of the file, or with a slash at its end the folder, that has the files of which `sent` tells."""
    return f"{sent['folder']}/" if "folder" in sent else str(sent["path"])


def are_omitted(files: Files, files_bytes: int | None) -> bool:
    """Returns whether the files of a row are too long for a list, which has none of them."""
    return not files and (files_bytes or 0) > MOST_SHOWN_FILES_BYTES


def entry_of(files: Files, path: str, *, of: str) -> Mapping[str, Any]:
    """Returns the entry of the file with this path. `of`: what has the files. Raises NotFound."""
    for entry in files:
        if entry["path"] == path:
            return entry
    raise NotFound(f"{of} has no file {path[:200]!r}")


ORDER = ("attempt", "saved_at", "id")
"""The columns that order checkpoints, oldest first."""
OrderKey = tuple[int, int, str]


class Ordered(Protocol):
    """A checkpoint that is listed."""

    @property
    def attempt(self) -> int: ...
    @property
    def saved_at(self) -> int: ...
    @property
    def id(self) -> str: ...


class Judged(Ordered, Protocol):
    @property
    def damaged(self) -> bool: ...
    @property
    def source(self) -> str | None: ...


J = TypeVar("J", bound=Judged)


def order_key(checkpoint: Ordered) -> OrderKey:
    """Returns what sorts checkpoints, oldest first: the values of `ORDER`."""
    return checkpoint.attempt, checkpoint.saved_at, checkpoint.id


def resumable(newest_first: Iterable[J]) -> Sequence[J]:
    """Returns those of a job's checkpoints, given newest first, that it may go on from, the one that it does first."""
    whole = [item for item in newest_first if not item.damaged]
    return sorted(whole, key=lambda item: item.source is not None)
