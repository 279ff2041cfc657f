"""The objects that all routes share: one set for the process."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.live import Live
from api.settings import Settings
from api.stream import Stream
from store.store import Store


@dataclass(frozen=True)
class Services:
    """The store, the watchers and the settings of the routes. Connects to nothing until it is used."""

    token: str
    """The administrator's token."""
    max_body_bytes: int
    sendfile: str
    """How a proxy sends files instead of the API; empty if it does not."""
    store: Store
    live: Live
    stream: Stream

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        store, live = Store.of(settings, program="torchyard-api", pool=16), Live(settings.redis)
        return cls(
            token=token,
            max_body_bytes=settings.max_body_bytes,
            sendfile=settings.sendfile,
            store=store,
            live=live,
            stream=Stream(store, live),
        )

    def close(self) -> None:
        """Ends all streams and closes the store. Call it in the event loop."""
        self.live.close()
        self.store.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
