"""The bodies of requests about targets of notifications."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from torchyard.contract import webaddress
from torchyard.contract.notifications import (
    DEFAULT_ON,
    EventKind,
    NotificationScope,
    TargetJobs,
    TargetKind,
)
from torchyard.contract.notify import OnKinds, TargetName
from torchyard.contract.requests import UserName
from torchyard.contract.schema import UNSET, Schema

_MAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){0,8}")


class NewTarget(Schema):
    """Where somebody wants to be told, and of what."""

    name: TargetName
    kind: TargetKind
    address: Annotated[
        str,
        Field(min_length=1, max_length=webaddress.LONGEST, description="`https://…`; for `mail`, an address of mail"),
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
            webaddress.parse(self.address)
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
