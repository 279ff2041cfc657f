"""The channel in Redis on which every commit publishes what it has changed: ids of jobs, and names of other things."""

from collections.abc import AsyncGenerator

from redis import RedisError
from redis.asyncio import Redis

from torchyard.contract.errors import Unavailable

CHANNEL = "torchyard:changes"


async def listen(url: str) -> AsyncGenerator[str | None]:
    """Yields None once it has subscribed, then the name of each change.

    Raises Unavailable if Redis does not answer or disconnects.
    """
    redis = Redis.from_url(url, socket_connect_timeout=2, decode_responses=True)
    try:
        async with redis, redis.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(CHANNEL)
            yield None
            async for message in subscription.listen():
                yield str(message["data"])
    except (RedisError, OSError) as error:
        raise Unavailable(f"redis does not answer: {error}") from error
