"""Server-sent events (HTML Living Standard, 9.2)."""

from collections.abc import Collection

from torchyard.contract.telemetry.views import StoredKind

HEARTBEAT = b": heartbeat\n\n"
"""A comment, which shows that the connection is alive."""
HEARTBEAT_S = 15.0
"""Seconds without an event after which a heartbeat is sent."""


def encoded(kind: str, data: str, *, id: str = "") -> bytes:
    """Returns an event. Without an id, it leaves the reader's position in the stream as it is."""
    line = f"id: {id}\n" if id else ""
    return f"{line}event: {kind}\ndata: {data}\n\n".encode()


def shows_lines(kinds: Collection[StoredKind]) -> bool:
    """Returns whether a stream of these kinds has `live` events, which show unfinished output lines.

    No kinds stand for all.
    """
    return not kinds or "log" in kinds
