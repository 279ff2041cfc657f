"""A job's stream: what it stored, each thing once, in order and as it comes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
from pydantic import BaseModel, ValidationError

from torchyard.client.answers import unexpected
from torchyard.contract.job import JobState
from torchyard.contract.views import EventView, LogLine, PointView

Kind = Literal["state", "metric", "log", "checkpoint", "progress", "message", "end"]

_TIMEOUT = httpx2.Timeout(45, connect=5)
"""Of a connection: the server is never silent for longer than the 15 s between two heartbeats."""


@dataclass(frozen=True)
class MetricPoint:
    """One value of one metric."""

    key: str
    point: PointView


class End(BaseModel):
    """The last thing in a stream: the state in which the job ended."""

    state: JobState


@dataclass(frozen=True)
class StreamItem:
    """`position` counts all that the job stored: what is behind it comes later. That of the end is the last item's."""

    position: int
    kind: Kind
    view: EventView | MetricPoint | LogLine | End


class Reading:
    """How far a stream has been read, over all its connections."""

    def __init__(self, after: int) -> None:
        self.position = after
        self.ended = False

    def arguments(self, only: Sequence[Kind]) -> dict[str, Any]:
        """What an HTTP client asks for the rest with."""
        return {
            "params": {"only": list(only)} if only else None,
            "headers": {"Last-Event-ID": str(self.position)} if self.position else {},
            "timeout": _TIMEOUT,
        }

    def take(self, event: httpx2.ServerSentEvent, response: httpx2.Response) -> StreamItem | None:
        """The item that the event is; None for one of a kind that only a later version knows.

        Raises ServerError for one that is no item.
        """
        try:
            item = _item(event)
        except ValidationError as error:
            raise unexpected(response, f"{event.event} event", error) from None
        if item is not None:
            self.position, self.ended = item.position, item.kind == "end"
        return item


def kinds(*, logs: bool, metrics: bool) -> list[Kind]:
    """All that somebody who follows a job wants to see."""
    chosen: list[Kind] = ["state", "checkpoint", "progress", "message"]
    if logs:
        chosen.append("log")
    if metrics:
        chosen.append("metric")
    return chosen


class _Metric(PointView):
    key: str


_VIEWS: dict[str, tuple[Kind, type[EventView | LogLine | End | _Metric]]] = {
    "state": ("state", EventView),
    "checkpoint": ("checkpoint", EventView),
    "progress": ("progress", EventView),
    "message": ("message", EventView),
    "metric": ("metric", _Metric),
    "log": ("log", LogLine),
    "end": ("end", End),
}


def _item(event: httpx2.ServerSentEvent) -> StreamItem | None:
    if event.event not in _VIEWS or not event.data or not event.id.isdecimal():
        return None
    kind, form = _VIEWS[event.event]
    view: Any = form.model_validate_json(event.data)
    if isinstance(view, _Metric):
        view = MetricPoint(view.key, PointView.model_validate(view.model_dump()))
    return StreamItem(int(event.id), kind, view)
