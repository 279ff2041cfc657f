"""What the routes work with: one set for the whole process."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.live import Live
from api.settings import Settings
from api.stream import Stream
from store.store import Store


@dataclass(frozen=True)
class Services:
    """The parts behind the API. Making them connects to nothing yet."""

    token: str
    """The admin's."""
    max_body_bytes: int
    sendfile: str
    """How a proxy sends files in the API's stead; empty where none does."""
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
        """Only in the event loop."""
        self.live.close()
        self.store.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


Parts = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
