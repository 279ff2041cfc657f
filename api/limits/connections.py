"""Counts connections, and ends the oldest idle ones when there are too many."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from api.limits.settings import LimitSettings
from torchyard.contract.errors import TooManyRequests, TorchyardError, Unavailable


class Endable(Protocol):
    """A connection."""

    def end(self) -> None:
        """Closes the connection, which then calls `ConnectionLimits.leave`."""


class ConnectionLimits:
    """The connections of one server, together and by host. A connection without a whole request head is idle.

    Idle and busy ones are counted apart, so that those who send nothing keep nobody from being served.
    """

    def __init__(self, settings: LimitSettings) -> None:
        self._all = _Group(settings.max_connections)
        self._by_host = defaultdict[str, _Group](lambda: _Group(settings.max_connections_per_address))

    def rest(self, connection: Endable, *, host: str | None) -> None:
        """Counts the connection as idle. Ends the oldest idle one if there are too many. None: no limit by host."""
        for group in self._groups(host):
            group.busy.discard(connection)
            group.idle[connection] = None
        for group in self._groups(host):
            if len(group.idle) > group.most:
                group.end_oldest()

    def serve(self, connection: Endable, *, host: str | None) -> TorchyardError | None:
        """Counts the connection as busy. Returns the error to answer if there are too many busy ones."""
        for group in self._groups(host):
            group.idle.pop(connection, None)
            group.busy.add(connection)
        if self._all.is_full:
            return Unavailable(f"the server answers {self._all.most} requests at once, its limit; try again")
        if host is not None and self._by_host[host].is_full:
            most = self._by_host[host].most
            return TooManyRequests(f"{host} has {most} requests open, the limit of an address; try again")
        return None

    def leave(self, connection: Endable, *, host: str | None) -> None:
        """Forgets the connection."""
        for group in self._groups(host):
            group.idle.pop(connection, None)
            group.busy.discard(connection)
        if host is not None and not self._by_host[host].idle and not self._by_host[host].busy:
            del self._by_host[host]

    def _groups(self, host: str | None) -> Sequence["_Group"]:
        return (self._all,) if host is None else (self._all, self._by_host[host])


class _Group:
    """The idle connections, oldest first, and the busy ones: at most `most` of each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.idle: dict[Endable, None] = {}
        self.busy: set[Endable] = set()

    @property
    def is_full(self) -> bool:
        return len(self.busy) > self.most

    def end_oldest(self) -> None:
        oldest = next(iter(self.idle))
        del self.idle[oldest]
        self.busy.add(oldest)  # until it leaves: what it has not read yet may take a while
        oldest.end()
