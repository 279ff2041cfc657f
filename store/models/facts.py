"""What is known of models and their versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from store.output.checkpoints_facts import Files, are_omitted, entry_of, sent_of
from store.team.callers import Caller
from torchyard.contract.models.names import ModelRef
from torchyard.contract.team.roles import Visibility


@dataclass(frozen=True, slots=True)
class ModelVersionFacts:
    """A checkpoint that was kept as a version of a model. Only the model's owner adds versions."""

    owner: str
    name: str
    version: int
    trainer: str
    job_id: str
    """The job that saved it, which may be deleted."""
    checkpoint_id: str
    step: int
    epoch: int | None
    metrics: Mapping[str, Any]
    """Non-finite values are strings, because JSON has no numbers for them."""
    card: Mapping[str, Any] | None
    files: Files
    """Empty in a row of a list that has `files_omitted`."""
    files_bytes: int | None
    sent: Mapping[str, Any] | None
    """This and `files_bytes` are those of the checkpoint."""
    size: int
    """Bytes of its files together."""
    created_at: datetime
    shows_job: bool = True
    """Whether the caller may know of which job it comes."""

    @property
    def ref(self) -> str:
        """What names it: `ada/digits@3`."""
        return str(ModelRef(self.owner, self.name, self.version))

    @property
    def created_by(self) -> str:
        """Who added it."""
        return self.owner

    def file(self, path: str) -> Mapping[str, Any]:
        """Returns the entry of one file. Raises NotFound."""
        return entry_of(self.files, path, of=f"model {self.ref}")

    @property
    def main_file(self) -> Mapping[str, Any]:
        """The entry of what is sent if no file is named. Raises NotFound if there is nothing."""
        return self.sent or sent_of(self.files, of=f"model {self.ref}")

    @property
    def files_omitted(self) -> bool:
        """Whether its files are too long for a row of a list, which has none of them."""
        return are_omitted(self.files, self.files_bytes)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model with its newest version."""

    owner: str
    name: str
    visibility: str
    versions: int
    """How many it has."""
    size: int
    """Bytes of the files of all versions."""
    newest: ModelVersionFacts


@dataclass(frozen=True)
class NewVersion:
    """A checkpoint to keep: `ref` of a job that the caller may read. `visibility`: that of a new model.

    `default`: the visibility of a new model for which none is asked.
    """

    name: str
    job_id: str
    ref: str
    visibility: Visibility | None
    default: Visibility
    caller: Caller


@dataclass(frozen=True)
class ModelFilter:
    """A list shows the models that meet every condition."""

    owner: str | None = None
    name: str | None = None
    job: str | None = None
    """The id of the job that has saved one of their versions."""
