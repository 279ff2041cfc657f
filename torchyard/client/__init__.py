"""The Python client: submit jobs to a Torchyard server, watch them, fetch their checkpoints."""

from torchyard.client.asynchronous import AsyncClient
from torchyard.client.client import Client, Update
from torchyard.client.stream import End, MetricPoint, StreamItem

__all__ = ["AsyncClient", "Client", "End", "MetricPoint", "StreamItem", "Update"]
