"""Limits the memory that request bodies take."""

import asyncio
from weakref import WeakValueDictionary


class LargeBodies:
    """Lets each user have one large body in memory. Call it in the event loop."""

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    def of(self, user: str) -> asyncio.Lock:
        """Returns what a request of the user holds while its large body is in memory."""
        return self._locks.setdefault(user, asyncio.Lock())
