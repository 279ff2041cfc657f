"""The Python client: submit jobs to a Torchyard service, follow them, and download their files.

Example:
    >>> with Client() as client:
    ...     job = client.submit(spec)
    ...     job.state.value
    'queued'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchyard.client.async_client import AsyncClient
    from torchyard.client.client import Client
    from torchyard.client.core.job import AsyncArtifact, AsyncCheckpoint, AsyncJob
    from torchyard.client.handles import Artifact, Checkpoint, Job
    from torchyard.client.series import Metrics, Series
    from torchyard.client.stream import StreamItem, Update
    from torchyard.contract.jobs.views import JobSummary, JobView
    from torchyard.contract.telemetry.views import EndView, EventView, LiveLine, LogLine, MetricView

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

_NAMES = {
    "torchyard.client.async_client": ("AsyncClient",),
    "torchyard.client.client": ("Client",),
    "torchyard.client.core.job": ("AsyncArtifact", "AsyncCheckpoint", "AsyncJob"),
    "torchyard.client.handles": ("Artifact", "Checkpoint", "Job"),
    "torchyard.client.series": ("Metrics", "Series"),
    "torchyard.client.stream": ("StreamItem", "Update"),
    "torchyard.contract.jobs.views": ("JobSummary", "JobView"),
    "torchyard.contract.telemetry.views": ("EndView", "EventView", "LiveLine", "LogLine", "MetricView"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Imported when it is first used: the command line needs a client only where a model of an answer is needed.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
