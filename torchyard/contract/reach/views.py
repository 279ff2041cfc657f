"""The JSON of reaches."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from torchyard.contract.wire.view import View


class OpenedReachView(View):
    """A new or reconnected reach. Client and worker connect to the WebSocket at `url`."""

    id: str
    job_id: str
    attempt: int
    meeting: int
    """1 for the first, and one more each time that its client joins it again."""
    secret: str = Field(repr=False)
    """What the client proves that it knows, in hex. It is not sent again, and good for this meeting."""
    url: str
    """The path of the WebSocket."""
    expires_at: datetime
    """Until when both ends must have come."""


class ReachView(View):
    """An open reach."""

    id: str
    job_id: str
    attempt: int
    user: str
    """Who has opened it."""
    kind: Literal["program", "ports", "ssh"]
    what: str
    """What was started, in some words, without arguments."""
    rank: int
    meeting: int
    created_at: datetime


class ReachesView(View):
    data: list[ReachView]


class OriginsView(View):
    """Whether this browser can open terminals and ports of jobs."""

    is_available: bool
    """Whether it has host names for them."""


class OpenedOriginView(View):
    """An address for a browser. It works once."""

    url: str = Field(repr=False)
    expires_at: datetime
