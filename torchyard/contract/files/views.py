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
    """The folder that has them all; empty if there is none."""
    files: int
    """How many they are."""


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
    """Whether a list left the files out, as they are many: ask for the checkpoint itself."""
    folder: CheckpointFolder | None = None
    size: int
    sha256: str
    aliases: list[str]
    created_at: datetime
    source: str = "run"
    damaged: bool = False
    """Whether it is not whole: it has no alias, and no job goes on from it."""
    remeasured: RemeasuredView | None = None
    """Null if it was not evaluated again. A recipe evaluates its best checkpoint again when it ends."""


class ArtifactView(View):
    """A file of a job. `path` is relative to `artifacts` of the run directory, or to the working folder."""

    id: str
    path: str
    size: int
    attempt: int
    """The newest attempt that wrote it."""
    sha256: str
    created_at: datetime


class KeepView(View):
    """A request to store files of a job's working folder, and the worker's progress."""

    paths: list[str]
    attempt: int
    requested_at: datetime
    answered_at: datetime | None = None
    """Null while the worker has not come to its end."""
    refused: str | None = None
    """Why nothing was stored, or what was not."""
    files: int
    """Files that were stored for it, and their bytes."""
    size: int
    copied: int
    """Bytes that were copied, with those of a file that is not whole yet."""
    worker: str
    """The worker on whose host the folder is."""
    away: bool
    """Whether that worker has not been seen for a while."""
