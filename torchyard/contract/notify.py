"""The key `notify` of a job spec: which targets are told of this job."""

from typing import Annotated

from pydantic import Field

from torchyard.contract.notifications import MOST_TARGETS, EventKind
from torchyard.contract.schema import Schema
from torchyard.contract.wording import allowing

TARGET_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
    "1 to 100 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit",
)
TargetName = Annotated[str, Field(pattern=TARGET_NAME)]
OnKinds = Annotated[list[Annotated[EventKind, Field(strict=False)]], Field(min_length=1, max_length=len(EventKind))]


class Notify(Schema):
    """Which targets of the job's owner are told of this job, besides those that are told of all."""

    targets: Annotated[
        list[TargetName], Field(min_length=1, max_length=MOST_TARGETS, description="the names of targets")
    ]
    on: OnKinds | None = Field(default=None, description="what they are told of; null: what each target says")


JobNotify = Annotated[
    Notify | None,
    Field(
        exclude_if=lambda value: value is None,
        description="which of the owner's targets are told of this job: `torchyard notifications add` makes one",
    ),
]
"""The key `notify` of a job spec."""
