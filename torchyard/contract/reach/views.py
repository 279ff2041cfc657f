"""What the service answers about the reaches of a job: the shells, commands, forwards and SSH connections of users."""

from datetime import datetime

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
