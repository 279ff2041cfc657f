"""Calls about what users had of the devices, and have on disks."""

from typing import Literal

from torchyard.client.calls.call import Call
from torchyard.contract.cluster.usage import DiskUseView, UsageRow
from torchyard.contract.wire.view import Page

UsageBy = Literal["owner", "label"]
"""What a row of usage is about: a user, or one label of a user's jobs."""


def usage(*, by: UsageBy, days: int, owner: str | None) -> Call[Page[UsageRow]]:
    return Call(Page[UsageRow], "GET", "/v1/usage", {"by": by, "days": days, "owner": owner})


def disk_use(*, limit: int) -> Call[DiskUseView]:
    return Call(DiskUseView, "GET", "/v1/usage/disk", {"limit": limit})
