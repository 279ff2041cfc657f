"""What the service and a worker know of reaches."""

from dataclasses import dataclass, field
from typing import Literal

from torchyard.contract.reach.orders import Order

End = Literal["client", "worker"]


@dataclass(frozen=True, slots=True)
class ReachOrder:
    """What a worker is to do for a reach of one of its attempts."""

    id: str
    kind: Literal["start", "join", "end"]
    """`start` and `join`: it goes to the meeting, and takes it to the program. `end`: it ends the program."""
    meeting: int
    secret: str = field(default="", repr=False)
    """What it proves at the meeting that it knows, in hex. Empty to end it."""
    order: Order | None = None
    """What is to be started. None for the others."""


@dataclass(frozen=True, slots=True)
class OpenedReach:
    """A reach whose ends are awaited at a meeting."""

    id: str
    job_id: str
    attempt: int
    meeting: int
    secret: str = field(repr=False)
    """What the client proves that it knows, in hex."""
    until: int
    """When the meeting is over if an end is missing, in microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Came:
    """What an end finds that has come to its meeting."""

    is_first: bool
    place: str
    """Where the first end waits for the other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingFacts:
    """A meeting of the two ends of a reach, and whose it is."""

    reach_id: str
    job_id: str
    attempt_id: int
    meeting: int
    secret: str = field(repr=False)
    user: str
    role: str
    token_id: str | None
    has_terminal: bool
    """Whether what runs waits for its client for hours."""


@dataclass(frozen=True, slots=True)
class OpenedOrigin:
    """A host name, and what opens it once."""

    name: str
    ticket: str = field(repr=False)
    until: int
    """When the ticket is too old, in microseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class OriginFacts:
    """What a browser that has the cookie of an origin may use there."""

    name: str
    job_id: str
    job_name: str
    user: str
    role: str
    token_id: str | None
    session: str
    """The digest of the browser's session."""
    port: int | None
    """None: a terminal."""
    reach_id: str | None
    """Of a terminal, once it was opened."""
    is_running: bool
    """Whether the attempt goes on."""
