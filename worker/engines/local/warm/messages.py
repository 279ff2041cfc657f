"""What a worker and its warm process say to each other, one JSON document a packet."""

from dataclasses import dataclass

from torchyard.contract.record import Record
from torchyard.contract.records import ProcessIdentity

LIMIT = 1 << 17
"""Bytes of a packet."""


@dataclass(frozen=True, kw_only=True)
class Ready(Record):
    """The warm process can be forked."""

    modules: list[str]
    """Top-level modules that it has imported, beyond what a rank that starts by itself imports first."""


@dataclass(frozen=True, kw_only=True)
class Request(Record):
    """Fork a supervisor. Two descriptors come with it: the attempt's lock, and the supervisor's log."""

    run: str
    """The attempt's run directory."""


@dataclass(frozen=True, kw_only=True)
class Forked(Record):
    """The answer: the supervisor, or why there is none."""

    process: ProcessIdentity | None = None
    trouble: str = ""
