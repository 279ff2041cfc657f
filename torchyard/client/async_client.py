"""The client for asyncio code."""

from pathlib import Path
from typing import Self

from torchyard.client.core.client import ClientCore
from torchyard.client.discovery import discover
from torchyard.client.nonblocking import AsyncioTransport


class AsyncClient(ClientCore):
    """`Client` for a running asyncio loop: the same methods, arguments and errors.

    Use it as `async with AsyncClient() as client`, or close it.
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
