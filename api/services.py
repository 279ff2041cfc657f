"""The objects that all routes share: one set for the process."""

from dataclasses import dataclass
import hashlib
from typing import Annotated

from fastapi import Depends, Request

from api.codes import LoginCodes
from api.feed import Feed
from api.jobs_stream import JobsStream
from api.live import Live
from api.pages import StoredPages
from api.paging import PlaceCursors
from api.rates import Rates, Streams
from api.settings import Settings
from api.stream import Stream
from store.store import Store

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
    stream: Stream
    jobs_stream: JobsStream
    places: PlaceCursors
    requests: Rates
    """The requests of each token."""
    streams: Streams
    """The open streams of each token."""
    wrong_tokens: Rates
    """The requests of each address that had a wrong token."""
    codes: LoginCodes

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        store = Store.of(settings, program="torchyard-api", pool=16)
        live = Live(settings.redis, service=store.service)
        pages = StoredPages()
        requests, wrong_tokens = settings.max_requests_per_second, settings.max_wrong_tokens_per_minute
        return cls(
            token=token,
            settings=settings,
            store=store,
            live=live,
            stream=Stream(store, live, pages),
            jobs_stream=JobsStream(store, Feed(store, live), pages),
            places=PlaceCursors(token),
            requests=Rates(per_second=requests, burst=max(1, requests * _BURST_S)),
            streams=Streams(settings.max_streams),
            wrong_tokens=Rates(per_second=wrong_tokens / 60, burst=wrong_tokens),
            codes=LoginCodes(),
        )

    @property
    def cookie_name(self) -> str:
        """The name of the session's cookie, which differs between services of one host: cookies ignore ports."""
        return f"torchyard_{hashlib.sha256(f'cookie {self.token}'.encode()).hexdigest()[:12]}"

    def close(self) -> None:
        """Ends all streams and closes the store. Call it in the event loop."""
        self.live.close()
        self.store.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
