"""The objects that all routes share: one set for the process."""

from dataclasses import dataclass
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from api import submissions
from api.auth import access as callers
from api.auth.access import Access
from api.installs.wheels import InstallFiles
from api.limits import forecasts, turns
from api.limits.bodies import LargeBodies
from api.limits.forecasts import ForecastLimits
from api.limits.turns import Together, Turns
from api.parsing.parser import LARGE_BYTES, Parser
from api.reaches.meetings import Meetings
from api.server.origins import OriginNames
from api.settings import Settings
from api.streams.feed import Feed
from api.streams.live import Live
from api.streams.multiplexed import MultiplexedStream
from api.streams.single import SingleStream
from api.streams.stored import SharedItems
from api.streams.wakeups import Wakeups
from api.submissions import Submissions
from store.blobs.uploads import OpenUploads
from store.store import Store
from store.worker.passes import SharedPasses

THREADS = 20
"""Threads for small answers and small changes."""
_CONNECTIONS = THREADS + callers.THREADS + 3 * turns.THREADS + forecasts.THREADS + submissions.THREADS
"""A connection to the database for each thread that may use one, so that none waits for another's."""

_PASS_THREADS = 64
_MEETINGS = "meetings"
"""The folder in the data directory by whose sockets processes of the API pass on what an end sends."""
_LARGE_PATIENCE_S = 60.0
"""Longest wait for the process that parses large bodies, of which some take seconds."""


@dataclass(frozen=True)
class Services:
    """The store, the streams, the limits and the settings of the routes. Connects to nothing until it is used."""

    settings: Settings
    store: Store
    access: Access
    live: Live
    single_stream: SingleStream
    multiplexed_stream: MultiplexedStream
    reads: Turns
    """Threads of reads that may take long."""
    writes: Turns
    """Threads of requests that change or check much."""
    parses: Turns
    """Threads that parse bodies. They use no connection to the database."""
    large_parses: Turns
    """The thread that waits for the process that parses large bodies."""
    forecasts: ForecastLimits
    submissions: Submissions
    large_bodies: LargeBodies
    parser: Parser
    wakeups: Wakeups
    """Wakes remote workers."""
    passes: SharedPasses
    """Places jobs on remote workers."""
    pass_threads: CapacityLimiter
    """Threads of those that ask for a pass, of whom one makes it for all."""
    worker_uploads: OpenUploads
    installs: InstallFiles
    origins: OriginNames
    """The host names of terminals and ports of jobs."""
    meetings: Meetings
    """Where the ends of reaches meet."""

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        """`token` is that of the bootstrap administrator."""
        store = Store.of(settings, program="torchyard-api", pool=16, most=_CONNECTIONS)
        live = Live(settings.redis, service=store.service)
        stored, together = SharedItems(), Together()
        access = Access.of(settings, store, token=token)
        store.on_access_change = access.identities.forget
        return cls(
            settings=settings,
            store=store,
            access=access,
            live=live,
            single_stream=SingleStream(store, live, stored),
            multiplexed_stream=MultiplexedStream(store, Feed(store, live), stored),
            reads=Turns(together=together),
            writes=Turns(together=together),
            parses=Turns(together=together),
            large_parses=Turns(threads=1, patience_s=_LARGE_PATIENCE_S, together=together, comes_last=True),
            forecasts=ForecastLimits(),
            submissions=Submissions(store),
            large_bodies=LargeBodies(),
            parser=Parser(),
            wakeups=Wakeups(settings.redis, service=store.service),
            passes=SharedPasses(store, max_stop_grace=settings.max_stop_grace),
            pass_threads=CapacityLimiter(_PASS_THREADS),
            worker_uploads=OpenUploads(),
            installs=InstallFiles(),
            origins=OriginNames(settings),
            meetings=Meetings(settings.root / _MEETINGS),
        )

    def parses_of(self, body: bytes) -> Turns:
        """Returns where the body is parsed: one large body at a time, so that only they wait."""
        return self.parses if len(body) < LARGE_BYTES else self.large_parses

    def end_streams(self) -> None:
        """Ends what would not end by itself. Call it in the event loop."""
        self.live.close()
        self.wakeups.close()

    def close(self) -> None:
        """Ends all streams and closes the store. Call it in the event loop."""
        self.end_streams()
        self.access.close()
        self.reads.close()
        self.writes.close()
        self.parses.close()
        self.large_parses.close()
        self.parser.close()
        self.forecasts.turns.close()
        self.submissions.close()
        self.single_stream.close()
        self.worker_uploads.close()
        self.meetings.close()
        self.store.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
