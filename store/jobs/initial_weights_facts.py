"""The weights that a job starts from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialFacts:
    """A checkpoint of a job, or a version of a model, as it was when a job was submitted that starts from it."""

    source_job: str | None
    """The job that has saved it, if that is known. It may be gone."""
    source_checkpoint: str | None
    model_owner: str | None
    model_name: str | None
    model_version: int | None
    """Of a named model its owner, its name and the version."""
    trainer: str
    """The trainer of the job that has saved it."""
    step: int
    epoch: int | None
    files: Sequence[Mapping[str, Any]]
    """`{path, size, sha256}` each; none once the job that starts from them has ended."""
    size: int
    """Bytes of its files together."""

    @property
    def model(self) -> str | None:
        """The named model, as `OWNER/NAME@VERSION`."""
        return None if self.model_name is None else f"{self.model_owner}/{self.model_name}@{self.model_version}"

    @property
    def ref(self) -> str:
        """The exact `init_from`, which never means anything else."""
        return f"{self.source_job}/{self.source_checkpoint}" if self.model is None else f"model:{self.model}"
