"""What a user wants to reach in a running attempt, and what the ends of a reach tell each other of it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from torchyard.contract.attempts.records import Rank
from torchyard.contract.wire.codec import Record, at_most, between, matching

MOST_BYTES = 100_000
"""Of the arguments of a program, with 8 bytes for each."""
LONGEST_CALL = 1 << 17
"""Bytes of a `Call` as JSON."""

ReachId = Annotated[str, matching(r"rch_[0-9a-f-]{32,36}", "a reach's id")]
Total = Annotated[int, between(0, 2**63 - 1)]


@dataclass(frozen=True, kw_only=True)
class Terminal(Record):
    """A terminal, as the user's own is."""

    rows: Annotated[int, between(1, 10_000)] = 24
    columns: Annotated[int, between(1, 10_000)] = 80
    kind: Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", "a name of a terminal")] = "xterm-256color"
    """For `TERM`."""


@dataclass(frozen=True, kw_only=True)
class Order(Record):
    """What is to be started inside the sandbox of an attempt."""

    kind: Literal["program", "ports", "ssh"]
    """`program`: one program, on channel 0, with its standard error on channel 1 if it has no terminal. `ports`: a
    channel for each connection that the client opens. `ssh`: an SSH server for this client, on channel 0."""
    argv: Annotated[list[str], at_most(10_000)] = field(default_factory=list[str])
    """Of a program. Empty: the user's shell."""
    rank: Rank = 0
    """Whose folder and variables a program gets."""
    terminal: Terminal | None = None
    """None: the program gets pipes."""
    authorized_key: Annotated[str, at_most(1000)] = ""
    """Of ssh: the public key of the client, as a line of `authorized_keys` has it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Order":
        order = super().from_dict(values)
        _check(order)
        return order


@dataclass(frozen=True, kw_only=True)
class Call(Record):
    """What the worker sends to the door of an attempt, before the frames of the client."""

    kind: Literal["start", "join"]
    """`join`: the client of a reach that was started comes again, by another connection."""
    reach: ReachId
    order: Order | None = None
    """Of a start."""


@dataclass(frozen=True, kw_only=True)
class Target(Record):
    """Where a channel is to be connected: one of the two."""

    port: Annotated[int, between(1, 65535)] | None = None
    """On loopback."""
    path: Annotated[str, matching(r"[^\0]{1,4096}", "a path")] | None = None
    """Of a Unix socket, below a folder of the job."""


@dataclass(frozen=True, kw_only=True)
class Hello(Record):
    """What each end of a reach has, at the beginning of a connection."""

    received: Annotated[dict[str, Total], at_most(10_000)] = field(default_factory=dict[str, int])
    """The bytes that have come so far, by channel. Empty on the first connection."""


def _check(order: Order) -> None:
    """Raises ValueError for an order that does not fit together."""
    if any("\0" in part for part in order.argv):
        raise ValueError("argv: no part may have a NUL character")
    size = sum(len(part.encode()) + 8 for part in order.argv)
    if size > MOST_BYTES:
        raise ValueError(f"argv: has {size} bytes, of at most {MOST_BYTES}")
    if order.kind != "program" and (order.argv or order.terminal is not None):
        raise ValueError(f"argv, terminal: belong to a program, not to {order.kind}")
    if order.kind == "program" and not order.argv and order.terminal is None:
        raise ValueError("argv: is missing. Only a shell with a terminal needs none")
    if order.kind == "program" and order.argv and not order.argv[0]:
        raise ValueError("argv: the name of the program is empty")
    if (order.kind == "ssh") != bool(order.authorized_key):
        raise ValueError("authorized_key: belongs to ssh, which needs one")
    if "\n" in order.authorized_key or "\r" in order.authorized_key:
        raise ValueError("authorized_key: must be one line")
