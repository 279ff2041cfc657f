"""The objects that all routes share: one set for the process."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.access import services as access_services
from api.access.services import Access
from api.limits import turns
from api.limits.turns import Turns
from api.settings import Settings
from api.streams.feed import Feed
from api.streams.job import JobStream
from api.streams.jobs import JobsStream
from api.streams.live import Live
from api.streams.stored import StoredPages
from store.store import Store

THREADS = 20
"""Threads for small answers and small changes."""
_CONNECTIONS = THREADS + access_services.THREADS + 3 * turns.THREADS
"""A connection to the database for each thread that may use one, so that none waits for another's."""


@dataclass(frozen=True)
class Services:
    """The store, the streams, the limits and the settings of the routes. Connects to nothing until it is used."""

    settings: Settings
    store: Store
    access: Access
    live: Live
    job_stream: JobStream
    jobs_stream: JobsStream
    reads: Turns
    """Threads of reads that may take long."""
    writes: Turns
    """Threads of requests that change or check much."""

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        """`token` is that of the bootstrap administrator."""
        store = Store.of(settings, program="torchyard-api", pool=16, most=_CONNECTIONS)
        live = Live(settings.redis, service=store.service)
        stored = StoredPages()
        return cls(
            settings=settings,
            store=store,
            access=Access.of(settings, store, token=token),
            live=live,
            job_stream=JobStream(store, live, stored),
            jobs_stream=JobsStream(store, Feed(store, live), stored),
            reads=Turns(),
            writes=Turns(),
        )

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
