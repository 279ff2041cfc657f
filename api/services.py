"""The objects that all routes share: one set for the process."""

from dataclasses import dataclass
import hashlib
from typing import Annotated

from fastapi import Depends, Request

from api.live import Live
from api.paging import PlaceCursors
from api.settings import Settings
from api.stream import Stream
from store.store import Store
from torchyard.contract.team import Visibility


@dataclass(frozen=True)
class Services:
    """The store, the watchers and the settings of the routes. Connects to nothing until it is used."""

    token: str
    """The bootstrap administrator's token."""
    visibility: Visibility
    """That of jobs whose spec says nothing of it."""
    max_body_bytes: int
    sendfile: str
    """How a proxy sends files instead of the API; empty if it does not."""
    store: Store
    live: Live
    stream: Stream
    places: PlaceCursors

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        store, live = Store.of(settings, program="torchyard-api", pool=16), Live(settings.redis)
        return cls(
            token=token,
            visibility=settings.visibility,
            max_body_bytes=settings.max_body_bytes,
            sendfile=settings.sendfile,
            store=store,
            live=live,
            stream=Stream(store, live),
            places=PlaceCursors(token),
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
