"""The watchers' subscription to Redis."""

import asyncio

from api.streams.live import Live
from tests.store.fixture import a_service

DEADLINE_S = 60.0


async def end_of_listener(redis_url: str, *, after_steps: int) -> bool:
    """Closes watchers after that many steps of the event loop. Returns whether their subscription ended."""
    before = asyncio.all_tasks()
    live = Live(redis_url, service=a_service)
    with live.watch("job", user="admin"):
        for _ in range(after_steps):
            await asyncio.sleep(0)
        listeners = asyncio.all_tasks() - before
        live.close()
        _, pending = await asyncio.wait(listeners, timeout=DEADLINE_S)
    for listener in pending:
        listener.cancel()
    return not pending


def test_the_subscription_ends_however_early_it_is_closed(redis_url: str) -> None:
    async def close_at_each_step() -> list[int]:
        return [steps for steps in range(40) if not await end_of_listener(redis_url, after_steps=steps)]

    assert asyncio.run(close_at_each_step()) == []
