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
    """Number of the connection, from 1."""
    secret: str = Field(repr=False)
    """The secret of this connection, in hex. Only this answer has it."""
    url: str
    """Path of the WebSocket."""
    expires_at: datetime
    """Both ends must connect before this time."""


class ReachView(View):
    """An open reach."""

    id: str
    job_id: str
    attempt: int
    user: str
    """The user who opened it."""
    kind: Literal["program", "ports", "ssh"]
    what: str
    """What was opened, without arguments."""
    rank: int
    meeting: int
    created_at: datetime


class ReachesView(View):
    data: list[ReachView]


class OriginsView(View):
    """Whether this browser can open terminals and ports of jobs."""

    is_available: bool
    """Whether this browser can open them."""


class OpenedOriginView(View):
    """An address for a browser. It works once."""

    url: str = Field(repr=False)
    expires_at: datetime
