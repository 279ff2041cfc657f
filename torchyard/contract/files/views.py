"""The JSON of files that a job leaves: checkpoints, artifacts and kept files."""

from datetime import datetime

from torchyard.contract.wire.view import Number, View


class CheckpointFile(View):
    path: str
    size: int
    sha256: str


class RemeasuredView(View):
    """The metrics of a checkpoint when it is re-evaluated in one process after training."""

    metrics: dict[str, Number]


class CheckpointFolder(View):
    """The folder of a checkpoint of several files without a `state.pt`. `/download` sends it as a tar."""

    path: str
    """The common folder of the files; empty if there is none."""
    files: int
    """Number of files."""


class CheckpointView(View):
    """A checkpoint. `size` and `sha256` are those of the file that `/download` sends.

    A `folder` is sent as a tar, and `sha256` is the digest of its list of files. `source` is `run` for a checkpoint
    that the program saved with `run`, and `captured` for a file or folder that matched `config.checkpoints`.
    """

    id: str
    epoch: int | None
    step: int
    attempt: int
    metrics: dict[str, Number]
    files: list[CheckpointFile]
    files_omitted: bool = False
    """True if the list omits `files` because there are many. Request the checkpoint to get them."""
    folder: CheckpointFolder | None = None
    size: int
    sha256: str
    aliases: list[str]
    created_at: datetime
    source: str = "run"
    damaged: bool = False
    """Whether it is incomplete. It then has no alias, and no job resumes from it."""
    remeasured: RemeasuredView | None = None
    """Metrics when re-evaluated. A recipe re-evaluates its best checkpoint at the end; null for all others."""


class ArtifactView(View):
    """A file of a job. `path` is relative to `artifacts` of the run directory, or to the working folder."""

    id: str
    path: str
    size: int
    attempt: int
    """The attempt that wrote the file."""
    sha256: str
    created_at: datetime


class KeepView(View):
    """A request to store files of a job's working folder, and the worker's progress."""

    paths: list[str]
    attempt: int
    requested_at: datetime
    answered_at: datetime | None = None
    """When the worker finished; null until then."""
    refused: str | None = None
    """What was not stored, and why; null if all was stored."""
    files: int
    """Number of stored files. `size` is their size in bytes."""
    size: int
    copied: int
    """Copied bytes, including those of an unfinished file."""
    worker: str
    """The worker that has the folder."""
    away: bool
    """Whether this worker has not reported for a while."""
