"""The Python client: submit jobs to a Torchyard server, watch them, fetch their checkpoints."""

from typing import TYPE_CHECKING, Any

from torchyard.client.client import Client, Update
from torchyard.client.stream import End, MetricPoint, StreamItem

if TYPE_CHECKING:
    from torchyard.client.async_client import AsyncClient

__all__ = ["AsyncClient", "Client", "End", "MetricPoint", "StreamItem", "Update"]


def __getattr__(name: str) -> Any:
    """AsyncClient, when it is asked for: asyncio takes its time, and most programs have no use for it."""
    if name == "AsyncClient":
        from torchyard.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
