"""Passes bytes between the two ends of a meeting, looks into none of them, and keeps none."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from api.reaches.ends import GOING_AWAY, NORMAL, End

_LAST_WORDS_S = 5.0
"""How long a worker may take to say that nothing runs any more, after a client that has said that it goes."""

Stop = Callable[[], Awaitable["Stopped"]]
"""Returns once the meeting must end."""


@dataclass(frozen=True)
class Stopped:
    """Why a meeting ends: a code, and words, for both ends."""

    code: int
    reason: str


@dataclass
class Passed:
    """Bytes that were passed on so far."""

    to_job: int = 0
    from_job: int = 0


async def relay(client: End, worker: End, passed: Passed, *, until: Stop) -> None:
    """Passes bytes on until one end is gone, or `until` returns. Then both are closed."""

    def count_up(count: int) -> None:
        passed.to_job += count

    def count_down(count: int) -> None:
        passed.from_job += count

    await asyncio.gather(client.greet(), worker.greet())
    up = asyncio.create_task(_pump(client, worker, count_up))
    down = asyncio.create_task(_pump(worker, client, count_down))
    stop = asyncio.ensure_future(until())
    tasks = (up, down, stop)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            await _close_both(client, worker, stop.result())
        elif down.done():
            await _close_both(client, worker, _end_of(worker))
        else:
            if client.has_finished:
                await _listen_on(down, stop)
            await worker.close(GOING_AWAY, "the client is gone")
            await client.close(GOING_AWAY, "")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end_of(worker: End) -> Stopped:
    if worker.has_finished:
        return Stopped(NORMAL, "it has ended")
    return Stopped(GOING_AWAY, "the connection of the worker was cut: join again")


async def _close_both(client: End, worker: End, stopped: Stopped) -> None:
    await asyncio.gather(client.close(stopped.code, stopped.reason), worker.close(stopped.code, stopped.reason))


async def _listen_on(down: asyncio.Task[None], stop: asyncio.Future[Stopped]) -> None:
    """Waits for the worker, whose client has said that it goes: what it has ended by that is not there to be joined."""
    with suppress(TimeoutError):
        await asyncio.wait((down, stop), timeout=_LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)


async def _pump(source: End, target: End, count: Callable[[int], None]) -> None:
    """Passes on what comes, until there is no more. What comes for a target that is gone is thrown away."""
    is_there = True
    while content := await source.receive():
        if is_there:
            try:
                await target.send(content)
                count(len(content))
            except ConnectionError:
                is_there = False
