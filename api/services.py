"""The objects that all routes share: one set for the process."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.live import Live
from api.rates import Rates, Streams
from api.settings import Settings
from api.stream import Stream
from store.store import Store

_BURST_S = 10
"""A caller's requests of this many seconds may come at once."""
_FAILED_LOGINS = 10
"""The requests with a wrong token that an address may send in a minute."""


@dataclass(frozen=True)
class Services:
    """The store, the watchers, the limits and the settings of the routes. Connects to nothing until it is used."""

    token: str
    """The administrator's token."""
    settings: Settings
    store: Store
    live: Live
    stream: Stream
    requests: Rates
    """The requests of each caller."""
    streams: Streams
    """The open streams of each caller."""
    failed_logins: Rates
    """The requests of each address that had a wrong token."""

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        store, live = Store.of(settings, program="torchyard-api", pool=16), Live(settings.redis)
        return cls(
            token=token,
            settings=settings,
            store=store,
            live=live,
            stream=Stream(store, live),
            requests=Rates(
                per_second=settings.max_requests_per_second, burst=max(1, settings.max_requests_per_second * _BURST_S)
            ),
            streams=Streams(settings.max_streams),
            failed_logins=Rates(per_second=_FAILED_LOGINS / 60, burst=_FAILED_LOGINS),
        )

    def close(self) -> None:
        """Ends all streams and closes the store. Call it in the event loop."""
        self.live.close()
        self.store.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
