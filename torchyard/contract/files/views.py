"""The JSON of files that a job leaves: checkpoints, artifacts and kept files."""

from datetime import datetime

from torchyard.contract.wire.view import Number, View


class CheckpointFile(View):
    path: str
    size: int
    sha256: str


class RemeasuredView(View):
    """What a checkpoint measures when it is evaluated again, in one process after training."""

    metrics: dict[str, Number]


class CheckpointFolder(View):
    """Of a checkpoint in several files without a `state.pt`, which `/download` sends as a tar."""

    path: str
    """The folder that has them all; empty if there is none."""
    files: int
    """How many they are."""


class CheckpointView(View):
    """A checkpoint. `size` is that of the file that `/download` sends, and `sha256` its digest.

    Of a `folder`, the file is a tar, and `sha256` the digest of the list of its files. `source` is `run` for one that
    the script published, `captured` for a file or folder that matched `config.checkpoints`.
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
    """A file that a job left. `path` is the one below `artifacts` of its run directory; of a kept file, the one below
    its working folder."""

    id: str
    path: str
    size: int
    attempt: int
    """The newest attempt that wrote it."""
    sha256: str
    created_at: datetime


class KeepView(View):
    """A request to store files of a job's working folder, and how far its worker has come."""

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
