"""The bodies of requests about models."""

from typing import Annotated

from pydantic import Field

from torchyard.contract.models.names import MODEL_NAME
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.wording import allowing


class NewModelVersion(Schema):
    """A checkpoint to save as the next version of a model."""

    name: Annotated[str, Field(pattern=MODEL_NAME)]
    source: Annotated[
        str,
        Field(
            alias="from",
            pattern=allowing(
                r"^(job_[0-9a-f]{32}/[A-Za-z0-9_-]{1,100}|swp_[0-9a-f]{32}/best)$",
                "job_…/REF, where REF is as in checkpoints, or swp_…/best",
            ),
            description="the checkpoint: `job_…/REF`, where REF is its id, `best`, `latest`, `epoch-N` or `step-N`;"
            " or `swp_…/best`",
        ),
    ]
    visibility: Visibility | None = Field(
        default=None,
        description="visibility of a new model; null: the server's default. An existing model must have the same",
    )


class ModelPatch(Schema):
    """Changes of a model."""

    visibility: Visibility
