"""Calls about what users had of the devices, and have on disks."""

from typing import Literal

from torchyard.client.calls.call import Call
from torchyard.contract.views.base import Page
from torchyard.contract.views.usage import DiskUseView, UsageRow

UsageBy = Literal["owner", "label"]
"""What a row of usage is about: a user, or one label of a user's jobs."""


def usage(*, by: UsageBy, days: int, owner: str | None) -> Call[Page[UsageRow]]:
    return Call(Page[UsageRow], "GET", "/v1/usage", {"by": by, "days": days, "owner": owner})


def disk_use(*, limit: int) -> Call[DiskUseView]:
    return Call(DiskUseView, "GET", "/v1/usage/disk", {"limit": limit})
