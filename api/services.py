"""What the routes work with: one set for the whole process."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from store.blobs import Blobs
from store.database import Database
from store.queue import Queue
from store.settings import Settings


@dataclass(frozen=True)
class Services:
    """The parts behind the API. Making them connects to nothing yet."""

    token: str
    """The admin's."""
    max_body_bytes: int
    database: Database
    queue: Queue
    blobs: Blobs

    @classmethod
    def of(cls, settings: Settings, *, token: str) -> "Services":
        return cls(
            token=token,
            max_body_bytes=settings.max_body_bytes,
            database=Database(settings.database),
            queue=Queue(settings.redis),
            blobs=Blobs(settings.blobs),
        )

    def close(self) -> None:
        self.queue.close()
        self.database.close()


async def _services(request: Request) -> Services:
    return request.app.state.services


Parts = Annotated[Services, Depends(_services)]
"""A route's parameter: the process's services."""
