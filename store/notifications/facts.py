"""What is known of notifications. Times are microseconds since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.contract.notifications.kinds import EventKind


@dataclass(frozen=True)
class NewTarget:
    """An address that is to be notified."""

    owner: str
    name: str
    kind: str
    address: str
    kinds: Sequence[EventKind]
    jobs: str = "all"
    scope: str = "own"


@dataclass(frozen=True)
class TargetChange:
    """What changes of a target. None: unchanged."""

    kinds: Sequence[EventKind] | None = None
    jobs: str | None = None


@dataclass(frozen=True)
class Destination:
    """Where a message goes."""

    id: str
    owner: str
    name: str
    kind: str
    address: str
    """A URL, or for `mail` an address."""
    secret: str | None
    """What signs a webhook: `whsec_` and base64."""


@dataclass(frozen=True)
class MessageFacts:
    """A message that this program is to send, and to tell how that went."""

    id: str
    kind: str
    body: Mapping[str, Any]
    """JSON: `type`, `timestamp` and `data`."""
    attempts: int
    """This one included."""
    age_s: float
    """Seconds since it was made."""
    target: Destination
