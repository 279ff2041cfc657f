"""The service as one worker reaches it: by the database and Redis, or over HTTPS alone."""

from collections.abc import Callable, Collection, Container, Generator, Iterator, Sequence
from typing import Protocol

from store.worker.protocol import Verbs
from store.worker.records import Claim
from torchyard.contract.cluster.devices import DeviceReport
from worker.reaches.meeting import ServiceAddress


class Wakeups(Protocol):
    """Waits for what workers are woken by. For one thread."""

    @property
    def asked(self) -> bool:
        """Whether the last wake-up was for a request, too. Otherwise only the line has changed."""
        ...

    def wait(self, timeout: float) -> bool:
        """Returns whether a wake-up came within `timeout` seconds. Raises Unavailable at once if none can come."""
        ...

    def close(self) -> None: ...


class Placing(Protocol):
    """Passes over the line of waiting jobs."""

    @property
    def has_more(self) -> bool:
        """Whether the last pass skipped some groups of an owner with very many. The next pass looks at others."""
        ...

    def anything_waits(self) -> bool:
        """Returns whether any job may wait. Raises Unavailable."""
        ...

    def claims(
        self,
        devices: Sequence[DeviceReport],
        *,
        running: Collection[int],
        may_claim: Callable[[], bool],
        may_postpone: bool,
    ) -> Iterator[Claim]:
        """Makes one pass. Yields each attempt that this worker takes, as soon as it is known. Raises Unavailable.

        `devices`: the worker's as they are now. `running`: the attempts that it carries out. `may_claim`: whether it
        may take a job at this moment. `may_postpone`: whether a pass that claims leaves it to a later one to say why
        the others wait.
        """
        ...


class ClusterDuties(Protocol):
    """What a worker does for the whole cluster. Each method raises Unavailable."""

    def rescue_expired(self) -> None:
        """Ends the attempts whose leases have expired."""
        ...

    def sweep(self) -> None:
        """Repairs the line of waiting jobs and what is said of it."""
        ...

    def database_was_away(self) -> None:
        """Notes an outage of the database, after which all leases look expired. Any thread may call it."""
        ...

    def remove_unreferenced_blobs(self) -> None: ...

    def clean(self) -> Generator[None]:
        """Removes and joins rows that are kept no longer. Yields after each transaction."""
        ...


class Forecasts(Protocol):
    """Makes estimates of when jobs start, in idle moments of one thread. It raises nothing."""

    def due_in(self) -> float:
        """Returns in how many seconds it wants to go on; 0: at once."""
        ...

    def work(self, may_go_on: Callable[[], bool]) -> None: ...

    def notice(self) -> None:
        """Notes that something may have changed."""
        ...

    def forget(self) -> None:
        """Throws away what was begun."""
        ...

    def leave(self) -> None:
        """Throws away what was begun, and lets another worker go on at once."""
        ...


class Service(Protocol):
    """What a daemon needs of its service. `close` it at the end."""

    @property
    def name(self) -> str:
        """What the worker wants to be called."""
        ...

    @property
    def verbs(self) -> Verbs: ...

    @property
    def address(self) -> ServiceAddress:
        """Where the ends of reaches meet."""
        ...

    @property
    def placing(self) -> Placing: ...

    def wakeups(self) -> Wakeups: ...

    def duties(self, own: Container[Claim], *, clock: Callable[[], float]) -> ClusterDuties:
        """`own`: the attempts that the worker carries out, which no duty ends."""
        ...

    def forecasts(self, observe: Callable[[], Sequence[DeviceReport]], *, clock: Callable[[], float]) -> Forecasts:
        """`observe` returns the worker's devices as they were seen last."""
        ...

    def close(self) -> None: ...
