"""The JSON of models."""

from datetime import datetime

from pydantic import Field, JsonValue

from torchyard.contract.files.views import CheckpointFile, CheckpointFolder
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.view import Number, View


class ModelVersionSummary(View):
    """A version of a model, without its model card. `size` and `sha256` are as in a checkpoint."""

    owner: str
    name: str
    version: int
    trainer: str
    job_id: str | None = Field(
        description="the job that saved it, which may be deleted; null if you may not read the job"
    )
    checkpoint_id: str | None
    epoch: int | None
    step: int
    metrics: dict[str, Number]
    files: list[CheckpointFile]
    files_omitted: bool = False
    """True if the list omits `files` because there are many. Request the version to get them."""
    folder: CheckpointFolder | None = None
    size: int
    sha256: str
    stored_bytes: int
    """Size of all its files in bytes."""
    created_at: datetime


class ModelVersionView(ModelVersionSummary):
    """A version of a model, with its model card."""

    card: dict[str, JsonValue] | None = None


class ModelView(View):
    """A model and its newest version."""

    owner: str
    name: str
    visibility: Visibility
    versions: int
    """Number of versions. Version numbers are never reused."""
    stored_bytes: int
    """Size of the files of all versions in bytes."""
    newest: ModelVersionSummary
