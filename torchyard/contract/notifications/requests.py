"""The bodies of requests about targets of notifications, and the key `notify` of a job spec."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from torchyard.contract.notifications import web_address
from torchyard.contract.notifications.kinds import (
    DEFAULT_ON,
    MOST_TARGETS,
    EventKind,
    NotificationScope,
    TargetJobs,
    TargetKind,
)
from torchyard.contract.team.requests import UserName
from torchyard.contract.wire.schema import UNSET, Schema
from torchyard.contract.wire.wording import allowing

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


_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){0,8}")


class NewTarget(Schema):
    """Where somebody wants to be told, and of what."""

    name: TargetName
    kind: TargetKind
    address: Annotated[
        str,
        Field(min_length=1, max_length=web_address.LONGEST, description="`https://…`; for `mail`, an email address"),
    ]
    on: OnKinds = [*DEFAULT_ON]
    jobs: TargetJobs = Field(default="all", description="`named`: only jobs whose spec names the target in `notify`")
    scope: NotificationScope = Field(
        default="own", description="`all`: also jobs of the team and lost workers; for administrators"
    )
    user: UserName | None = Field(default=None, description="whose; only an administrator may name another user")

    @model_validator(mode="after")
    def _address_fits(self) -> Self:
        if self.kind != "mail":
            web_address.parse(self.address)
        elif _MAIL.fullmatch(self.address) is None:
            raise ValueError("address must be one of mail: alice@example.com")
        return self

    @model_validator(mode="after")
    def _workers_are_for_all(self) -> Self:
        if self.scope == "own" and EventKind.WORKER_LOST in self.on:
            raise ValueError("worker.lost needs scope all: workers belong to no user")
        return self


class TargetPatch(Schema):
    """What can be changed of a target. What is left out stays."""

    on: OnKinds = UNSET
    jobs: TargetJobs = UNSET
