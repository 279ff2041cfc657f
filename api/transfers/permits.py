"""Ends long answers when their caller's token is revoked or expires, or the caller is disabled."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
import time
from typing import TypeVar

from api.auth.callers import Principal, check_watched
from api.errors import Interrupted
from api.services import Services
from torchyard.contract.errors import NotAuthorized, Unavailable

T = TypeVar("T")

_ASKED_EVERY_S = 15.0

Check = Callable[[], Awaitable[None]]
"""Call it between the parts of an answer. Raises NotAuthorized when the caller may not have the rest."""


@contextmanager
def permit(services: Services, caller: Principal, *job_ids: str) -> Generator[Check]:
    """Yields the check of a caller for the duration of a request, which is about these jobs. Call it in the event loop.

    It asks the database when a change of access was announced, and every 15 seconds.
    """

    async def check() -> None:
        if not watch.is_check_due():
            return
        try:
            sight = await services.access.at_once(check_watched, services.access, caller, job_ids)
        except Unavailable:
            return  # whoever reads on from the database fails by itself
        if sight.existing - sight.readable:
            raise NotAuthorized("you may not read this job any more")

    with services.live.watch_access(job_ids, user=caller.name) as watch:
        yield check


async def while_permitted(
    parts: AsyncGenerator[T], services: Services, caller: Principal, *job_ids: str
) -> AsyncGenerator[T]:
    """Yields the parts of an answer that has begun. Raises Interrupted when the caller may not have the rest."""
    with permit(services, caller, *job_ids) as check:
        async for part in parts:
            await ended_by(check)
            yield part


async def ended_by(check: Check) -> None:
    """Raises Interrupted, which closes the connection, if the caller may not have the rest of an answer."""
    try:
        await check()
    except NotAuthorized as error:
        raise Interrupted(error.message) from None


@contextmanager
def permit_worker(services: Services, may_read: Callable[[], bool]) -> Generator[Check]:
    """Yields the check of a remote worker for the duration of a download. It asks the database every 15 seconds."""
    asked_at = time.monotonic()

    async def check() -> None:
        nonlocal asked_at
        if time.monotonic() < asked_at + _ASKED_EVERY_S:
            return
        asked_at = time.monotonic()
        with suppress(Unavailable):  # it is asked again
            if not await services.access.at_once(may_read):
                raise NotAuthorized("no job of this worker names this blob any more")

    yield check
