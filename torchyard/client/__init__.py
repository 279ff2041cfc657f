"""The Python client: submit jobs to a Torchyard server, watch them, fetch their checkpoints."""

from typing import TYPE_CHECKING, Any

from torchyard.client.client import Client
from torchyard.client.core.job import AsyncArtifact, AsyncCheckpoint, AsyncJob
from torchyard.client.handles import Artifact, Checkpoint, Job
from torchyard.client.series import Metrics, Series
from torchyard.client.stream import StreamItem, Update
from torchyard.contract.views.jobs import JobSummary, JobView
from torchyard.contract.views.telemetry import EndView, EventView, LiveLine, LogLine, MetricView

if TYPE_CHECKING:
    from torchyard.client.async_client import AsyncClient

__all__ = [
    "Artifact",
    "AsyncArtifact",
    "AsyncCheckpoint",
    "AsyncClient",
    "AsyncJob",
    "Checkpoint",
    "Client",
    "EndView",
    "EventView",
    "Job",
    "JobSummary",
    "JobView",
    "LiveLine",
    "LogLine",
    "MetricView",
    "Metrics",
    "Series",
    "StreamItem",
    "Update",
]


def __getattr__(name: str) -> Any:
    # asyncio takes long to import, and most programs do not need it.
    if name == "AsyncClient":
        from torchyard.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
