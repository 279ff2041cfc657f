"""The stream that wakes a remote worker. It is no part of the public API."""

from collections.abc import AsyncGenerator

from fastapi import Depends

from api.auth.access import AccessDep
from api.auth.workers import RegisteredWorker, is_used_by
from api.openapi.routers import unguarded
from api.routes.stream import STREAM_HEADERS, EventStream
from api.services import ServicesDep
from store.worker import wire

router = unguarded("worker")


async def _open_stream(access: AccessDep, sender: RegisteredWorker) -> AsyncGenerator[None]:
    """Counts the stream among those of the worker until it ends. Raises TooManyRequests."""
    async with access.open_streams.open(sender.worker_id):
        yield


@router.get(f"{wire.PREFIX}/{wire.EVENTS}", include_in_schema=False, dependencies=[Depends(_open_stream)])
async def stream_wakeups(*, services: ServicesDep, access: AccessDep, sender: RegisteredWorker) -> EventStream:
    """Streams `wake` with `line` when jobs wait, and with `asked` when somebody asks workers for something."""

    async def is_valid() -> bool:
        return await access.at_once(is_used_by, access, sender)

    return EventStream(services.wakeups.events(is_valid), headers=STREAM_HEADERS)
