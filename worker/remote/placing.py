"""Passes over the line for a worker that has joined: the service makes them, with the devices that it is sent."""

from collections.abc import Callable, Collection, Iterator, Sequence

from store.worker import wire
from store.worker.records import Claim
from torchyard.contract.cluster.devices import DeviceReport
from worker.remote.connection import Connection
from worker.remote.reporting import Reporting


class RemotePlacing:
    """A `worker.service.Placing`."""

    def __init__(self, connection: Connection, reporting: Reporting) -> None:
        self._connection = connection
        self._reporting = reporting
        self._is_woken = True
        """Whether jobs may wait of which no pass has asked."""

    @property
    def has_more(self) -> bool:
        return self._is_woken

    def notice(self) -> None:
        """Notes a wake-up. Any thread may call it."""
        self._is_woken = True

    def anything_waits(self) -> bool:
        return self._is_woken or self._reporting.orders().waits

    def claims(
        self,
        devices: Sequence[DeviceReport],
        *,
        running: Collection[int],
        may_claim: Callable[[], bool],
        may_postpone: bool,
    ) -> Iterator[Claim]:
        if not may_claim():
            return
        self._is_woken = False
        asked = wire.PassAsked(devices=devices, running=[*running])
        try:
            made = self._connection.call(wire.CLAIMS, asked)
        except BaseException:
            self._is_woken = True
            raise
        self._is_woken |= bool(made.claims or made.lost)  # the next pass may find more
        yield from made.claims
