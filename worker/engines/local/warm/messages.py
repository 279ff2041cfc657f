"""The messages between a worker and its warm process, one JSON document in each packet."""

from dataclasses import dataclass

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.wire.codec import Record

LIMIT = 1 << 17
"""The most bytes of a packet."""


@dataclass(frozen=True, kw_only=True)
class Ready(Record):
    """The warm process is ready to be forked."""

    modules: list[str]
    """The top-level modules that it has imported, besides those that every rank imports first."""


@dataclass(frozen=True, kw_only=True)
class ForkRequest(Record):
    """Asks for a fork that supervises an attempt.

    Three descriptors come with it: its lock, the supervisor's log, and the secrets, which this process never reads.
    """

    run: str
    """The attempt's run directory."""


@dataclass(frozen=True, kw_only=True)
class ForkReply(Record):
    """The supervisor, or the reason why there is none."""

    process: ProcessIdentity | None = None
    trouble: str = ""
