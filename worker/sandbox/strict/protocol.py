"""What is said on the helper's socket: one JSON object a message. Names no path and no command.

A client connects and sends one request. `Status` and `Signal` get one answer. `Start` gets `Started` and, once nothing
of the attempt runs any more, `Ended`. The helper kills the attempt when the client shuts its connection down for
writing, or ends. Each may answer `Refused` instead.
"""

from dataclasses import dataclass, field
import signal
import socket
from typing import Annotated, Literal, TypeVar

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import COLLECTIVES_SIGNAL, STACKS_SIGNAL
from torchyard.contract.wire.codec import Record, between, matching, parse_object

SIGNALS = frozenset({signal.SIGTERM, signal.SIGUSR1, STACKS_SIGNAL, COLLECTIVES_SIGNAL})
"""The signals that the helper sends on request."""
LONGEST = 1 << 16
"""Bytes of a message, at most."""
Network = Literal["none", "egress"]
"""`none`: loopback of its own. `egress`: that of the host."""

JobId = Annotated[str, matching(r"job_[0-9a-f-]{32,36}", "a job's id")]
AttemptNumber = Annotated[int, between(1, 10**9)]


@dataclass(frozen=True, kw_only=True)
class Status(Record):
    """Asks what the helper does and can do."""

    kind: Literal["status"] = "status"


@dataclass(frozen=True, kw_only=True)
class Start(Record):
    """Asks for the start of the attempt whose plan is in its run directory."""

    kind: Literal["start"] = "start"
    job_id: JobId
    attempt: AttemptNumber


@dataclass(frozen=True, kw_only=True)
class Signal(Record):
    """Asks for a signal to one process of an attempt."""

    kind: Literal["signal"] = "signal"
    job_id: JobId
    attempt: AttemptNumber
    process: ProcessIdentity
    """As processes outside the attempt see it."""
    number: int


@dataclass(frozen=True, kw_only=True)
class Capabilities(Record):
    """Answers `Status`."""

    kind: Literal["capabilities"] = "capabilities"
    data_dir: str
    python: str
    """The Python that attempts may run."""
    network: Network
    readable: list[str]
    """The folders that the helper's operator allows jobs to read. So is the next one, to write."""
    writable: list[str]
    environments: list[str] = field(default_factory=list[str])
    """The environments that jobs may name, and folders of such."""
    lacks: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, kw_only=True)
class Started(Record):
    """Answers `Start`."""

    kind: Literal["started"] = "started"
    init: ProcessIdentity
    """All processes of the attempt are below it. When it ends, the kernel ends them."""
    uid: int
    """The user of the attempt's processes."""


@dataclass(frozen=True, kw_only=True)
class Ended(Record):
    """Says that no process of the attempt is left."""

    kind: Literal["ended"] = "ended"
    exit_code: int
    """That of the launcher, or minus the number of the signal that killed it."""


@dataclass(frozen=True, kw_only=True)
class Done(Record):
    """Answers `Signal`."""

    kind: Literal["done"] = "done"
    sent: bool
    """False if the process has ended."""


@dataclass(frozen=True, kw_only=True)
class Refused(Record):
    kind: Literal["refused"] = "refused"
    why: str


Message = Status | Start | Signal | Capabilities | Started | Ended | Done | Refused
T = TypeVar("T", bound=Message)


class Refusal(Exception):
    """A request that the helper refuses."""


def send(connection: socket.socket, message: Message) -> None:
    """Raises OSError."""
    connection.send(message.to_json().encode())


def receive(connection: socket.socket, *kinds: type[T]) -> T | None:
    """Waits for a message of one of `kinds`. Returns None if the other side has ended.

    Raises OSError, and ValueError for anything else.
    """
    raw = connection.recv(LONGEST)
    if not raw:
        return None
    values = parse_object(raw)
    for kind in kinds:
        if values.get("kind") == kind.kind:
            return kind.from_dict(values)
    raise ValueError("this is not a message that is expected here")
