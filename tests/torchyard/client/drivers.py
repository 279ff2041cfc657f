"""Both clients behind one interface, so that one test suite holds for both."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Self, cast

from torchyard.client import AsyncArtifact, AsyncCheckpoint, AsyncClient, AsyncJob, Client
from torchyard.client.blocking import Driver

NOUNS = tuple(name for name, value in vars(Client("http://127.0.0.1:1", "t")).items() if isinstance(value, Driver))
"""The namespaces of a client."""
_HANDLES = (AsyncJob, AsyncCheckpoint, AsyncArtifact)
Connect = Callable[..., Client]
"""Makes a client, with the arguments of `Client`."""


class AsyncioDriver:
    """Has the methods of `Client`. Each runs the method of an AsyncClient in one event loop."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*args, **options)
        for noun in NOUNS:
            setattr(self, noun, _Methods(self._runner, getattr(self._client, noun)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(_Methods(self._runner, self._client), name)


class _Methods:
    """Runs the methods of an object in the loop."""

    def __init__(self, runner: asyncio.Runner, of: Any) -> None:
        self._runner = runner
        self._of = of

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._of, name)
        if not callable(attribute):
            return attribute

        def method(*args: Any, **options: Any) -> Any:
            result: Any = attribute(*args, **options)
            if isinstance(result, AsyncGenerator):
                return self._iterate(result)
            return self._driven(self._runner.run(result))

        return method

    def _driven(self, result: Any) -> Any:
        return _Methods(self._runner, result) if isinstance(result, _HANDLES) else result

    def _iterate(self, items: AsyncGenerator[Any]) -> Generator[Any]:
        async def following() -> Any:
            return await anext(items)

        try:
            while True:
                try:
                    item = self._runner.run(following())
                except StopAsyncIteration:
                    return
                yield self._driven(item)
        finally:
            self._runner.run(_close(items))


async def _close(items: AsyncGenerator[Any]) -> None:
    await items.aclose()


DRIVERS: dict[str, Connect] = {"blocking": Client, "asyncio": cast(Connect, AsyncioDriver)}
