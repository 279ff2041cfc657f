"""What the service itself reads of a stored spec. An older or a newer version may have written it."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from torchyard.contract.schema import Duration
from torchyard.contract.spec import Resources


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class StoredCheckpointPolicy(_Part):
    """Which checkpoints stay, and which is the best, as in `torchyard.contract.spec.CheckpointPolicy`."""

    keep_last: int | None = None
    keep_best: int = 1
    monitor: str = "val/loss"
    mode: str = "min"


class StoredSpec(_Part):
    """Defaults are those of `torchyard.contract.spec`; keys that this version does not know are ignored."""

    checkpoint: StoredCheckpointPolicy = StoredCheckpointPolicy()
    preemptible: bool = False
    max_restarts: int = 2
    stop_grace: Duration = timedelta(seconds=30)
    time_limit: Duration = timedelta(hours=24)


def parse_resources(written: dict[str, Any]) -> Resources:
    """The resources of a stored spec. Raises pydantic.ValidationError for what only a newer version knows."""
    return Resources.model_validate(written)
