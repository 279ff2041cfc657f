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
    """Notification channels of the owner for this job, in addition to the channels for all jobs."""

    targets: Annotated[list[TargetName], Field(min_length=1, max_length=MOST_TARGETS, description="names of channels")]
    on: OnKinds | None = Field(default=None, description="events to send; null: the events of each channel")


JobNotify = Annotated[
    Notify | None,
    Field(
        exclude_if=lambda value: value is None,
        description="notification channels for this job; `torchyard notifications add` makes a channel",
    ),
]
"""The key `notify` of a job spec."""


_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){0,8}")


class NewTarget(Schema):
    """A notification channel to add."""

    name: TargetName
    kind: TargetKind
    address: Annotated[
        str,
        Field(
            min_length=1,
            max_length=web_address.LONGEST,
            description="URL (`https://…`), or an email address for `mail`",
        ),
    ]
    on: OnKinds = [*DEFAULT_ON]
    jobs: TargetJobs = Field(
        default="all", description="`all`: all your jobs; `named`: only jobs that name the channel in `notify`"
    )
    scope: NotificationScope = Field(
        default="own",
        description="`own`: your jobs; `all`: also jobs of the team, and lost workers (administrators only)",
    )
    user: UserName | None = Field(
        default=None, description="owner of the channel; only an administrator may name another user"
    )

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
    """Changes of a notification channel. Omitted fields stay."""

    on: OnKinds = UNSET
    jobs: TargetJobs = UNSET
