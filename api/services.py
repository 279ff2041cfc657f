"""The objects that all routes share: one set for the process."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
import hashlib
from typing import Annotated, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from api.access.codes import LoginCodes
from api.access.links import FileLinks
from api.limits import turns
from api.limits.rates import Rates, Streams
from api.limits.turns import Turns
from api.parameters.paging import PlaceCursors
from api.settings import Settings
from api.streams.feed import Feed
from api.streams.job import JobStream
from api.streams.jobs import JobsStream
from api.streams.live import Live
from api.streams.stored import StoredPages
from store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 20
"""Threads for small answers and small changes."""
_DOORS = 4
_NOTES = 2
_CONNECTIONS = THREADS + _DOORS + _NOTES + 3 * turns.THREADS
"""A connection to the database for each thread that may use one, so that none waits for another's."""
_BURST_S = 10
"""A caller's requests of this many seconds may come at once."""


@dataclass(frozen=True)
class Services:
    """The store, the watchers, the limits and the settings of the routes. Connects to nothing until it is used."""

    token: str
    """The bootstrap administrator's token."""
    settings: Settings
    store: Store
    live: Live
    job_stream: JobStream
    jobs_stream: JobsStream
    places: PlaceCursors
    requests: Rates
    """The requests of each token."""
    streams: Streams
    """The open streams of each token."""
    wrong_tokens: Rates
    """The requests of each address that had a wrong token."""
    codes: LoginCodes
    links: FileLinks
    reads: Turns
    """The threads of reads that may take long."""
    writes: Turns
    """The threads of requests that change or check much."""
    doors: CapacityLimiter
    """The threads that find out who makes a request. Nothing else may occupy them."""
    notes: CapacityLimiter
    """The threads that store what was found out, which may have to wait for other writes."""

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        store = Store.of(settings, program="torchyard-api", pool=16, most=_CONNECTIONS)
        live = Live(settings.redis, service=store.service)
        stored = StoredPages()
        requests, wrong_tokens = settings.max_requests_per_second, settings.max_wrong_tokens_per_minute
        return cls(
            token=token,
            settings=settings,
            store=store,
            live=live,
            job_stream=JobStream(store, live, stored),
            jobs_stream=JobsStream(store, Feed(store, live), stored),
            places=PlaceCursors(token),
            requests=Rates(per_second=requests, burst=max(1, requests * _BURST_S)),
            streams=Streams(settings.max_streams),
            wrong_tokens=Rates(per_second=wrong_tokens / 60, burst=wrong_tokens),
            codes=LoginCodes(),
            links=FileLinks(token),
            reads=Turns(),
            writes=Turns(),
            doors=CapacityLimiter(_DOORS),
            notes=CapacityLimiter(_NOTES),
        )

    async def at_once(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a short question of who may do what in a thread, however busy all others are. Raises what it does.

        It must not write: a write waits for those of others.
        """
        return await to_thread.run_sync(partial(ask, *args, **kwargs), limiter=self.doors)

    async def note(self, write: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Stores a use or a refusal of a credential in a thread, which others are not kept waiting for."""
        await to_thread.run_sync(partial(write, *args, **kwargs), limiter=self.notes)

    def cookie_name(self, *, secure: bool) -> str:
        """Returns the name of the session's cookie, which differs between services of one host: cookies ignore ports.

        Browsers accept the name of a `secure` one over HTTPS alone, so that no plain page of the host can set it.
        """
        name = f"torchyard_{hashlib.sha256(f'cookie {self.token}'.encode()).hexdigest()[:12]}"
        return f"__Host-{name}" if secure else name

    def close(self) -> None:
        """Ends all streams and closes the store. Call it in the event loop."""
        self.live.close()
        self.reads.close()
        self.writes.close()
        self.job_stream.close()
        self.store.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
