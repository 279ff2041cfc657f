"""The part of a stored spec that the service reads. An older or a newer version may have written the spec."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from torchyard.contract.bounds import DEFAULT_RESTARTS
from torchyard.contract.spec.resources import Resources
from torchyard.contract.wire.schema import Duration


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class StoredCheckpointPolicy(_Part):
    """Which checkpoints are kept, and which is the best, as in `torchyard.contract.spec.spec.CheckpointPolicy`."""

    keep_last: int | None = None
    keep_best: int = 1
    monitor: str = "val/loss"
    mode: str = "min"


class StoredSpec(_Part):
    """Has the defaults of `torchyard.contract.spec.spec`. Unknown keys are ignored."""

    checkpoint: StoredCheckpointPolicy = StoredCheckpointPolicy()
    preemptible: bool = False
    idle_timeout: Duration | None = None
    max_restarts: int = DEFAULT_RESTARTS
    stop_grace: Duration = timedelta(seconds=30)
    time_limit: Duration = timedelta(hours=24)


def parse_resources(written: dict[str, Any]) -> Resources:
    """Parses the resources of a stored spec. Raises pydantic.ValidationError for those of a newer version."""
    return Resources.model_validate(written)
