"""Listens to what commits announce in Redis: ids of jobs, and names of other things that have changed."""

from collections.abc import AsyncGenerator

from redis import RedisError
from redis.asyncio import Redis

from store.redis.client import DRIVER
from torchyard.contract.errors import Unavailable


async def listen(url: str, *, channel: str) -> AsyncGenerator[str | None]:
    """Yields None once it has subscribed, then the name of each change on this channel of `store.redis.names`.

    Raises Unavailable if Redis does not answer or disconnects.
    """
    redis = Redis.from_url(url, socket_connect_timeout=2, decode_responses=True, driver_info=DRIVER)
    try:
        async with redis, redis.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(channel)
            yield None
            async for message in subscription.listen():
                yield str(message["data"])
    except (RedisError, OSError) as error:
        raise Unavailable(f"redis does not answer: {error}") from error
