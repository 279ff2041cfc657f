"""The bodies of requests about models."""

from typing import Annotated

from pydantic import Field

from torchyard.contract.models.names import MODEL_NAME
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.wording import allowing


class NewModelVersion(Schema):
    """A checkpoint to keep as the next version of a model."""

    name: Annotated[str, Field(pattern=MODEL_NAME)]
    source: Annotated[
        str,
        Field(
            alias="from",
            pattern=allowing(
                r"^(job_[0-9a-f]{32}/[A-Za-z0-9_-]{1,100}|swp_[0-9a-f]{32}/best)$",
                "job_…/REF, where REF is as in checkpoints, or swp_…/best",
            ),
            description="`job_…/REF`; REF is the id of a checkpoint, `best`, `latest`, `epoch-N` or `step-N`. Or "
            "`swp_…/best`",
        ),
    ]
    visibility: Visibility | None = Field(
        default=None, description="of a new model; null: the server's. A model that is there must have the same"
    )


class ModelPatch(Schema):
    """What can be changed of a model."""

    visibility: Visibility
