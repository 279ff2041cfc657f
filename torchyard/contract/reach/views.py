"""What the service answers about the reaches of a job: the shells, commands, forwards and SSH connections of users."""

from datetime import datetime
from typing import Literal

from torchyard.contract.wire.view import View


class MeetingView(View):
    """Where a client meets its end in the job, and the secret that both prove. It is good once."""

    id: str
    job_id: str
    attempt: int
    meeting: int
    """1, and one more for each time that the client joins again."""
    secret: str
    """32 bytes in hex. It is never sent again."""
    url: str
    """Of the WebSocket, below the service's address, without the end that comes."""
    expires_at: datetime
    """Until then the client must have come."""


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
    last_input_at: datetime | None
    """When its user last sent anything, to some seconds."""


class ReachesView(View):
    """The open reaches into a job, the oldest first."""

    data: list[ReachView]
