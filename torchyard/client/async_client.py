"""The client for asyncio code."""

from pathlib import Path
from typing import Self

from torchyard.client.core.client import ClientCore
from torchyard.client.discovery import discover
from torchyard.client.nonblocking import AsyncioTransport


class AsyncClient(ClientCore):
    """The client for asyncio: the methods, arguments and errors of `Client`.

    Await its calls, and use `async for` where `Client` returns an iterator. Use it in `async with`, or await `close`.

    Example:
        >>> async def names():
        ...     async with AsyncClient() as client:
        ...         return [job.name async for job in client.jobs.list()]
        >>> asyncio.run(names())
        ['digits']
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        data_dir: str | Path = ".torchyard",
        certificate: str | None = None,
        patience: float = 30.0,
    ) -> None:
        server = discover(url, token, data_dir=Path(data_dir), certificate=certificate)
        super().__init__(server, AsyncioTransport(server), patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
