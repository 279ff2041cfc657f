"""Reads a job's stream: which events were received, and what to ask for on the next connection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import httpx2
from pydantic import ValidationError

from torchyard.client.responses import unexpected
from torchyard.contract.jobs.views import JobView
from torchyard.contract.telemetry.views import (
    EndView,
    EventKind,
    EventView,
    LiveLine,
    LogLine,
    MetricView,
    StoredKind,
    StreamKind,
)

Update = JobView | EventView | MetricView | LogLine | LiveLine
"""What `follow` yields."""

_TIMEOUT = httpx2.Timeout(45, connect=5)
"""The server sends a heartbeat every 15 s."""


@dataclass(frozen=True)
class StreamItem:
    """One event of a stream.

    Attributes:
        position: The number of the item among all that the job stored. `live` items have the number of the previous
            one.
        kind: `state`, `message`, `checkpoint`, `media`, `progress`, `metric`, `log`, `live` or `end`.
        view: The content.
    """

    position: int
    kind: StreamKind
    view: EventView | MetricView | LogLine | LiveLine | EndView


class StreamReader:
    """Keeps how far a stream was read, over all its connections."""

    def __init__(self, *, after: int, only: Sequence[StoredKind], live: bool = False) -> None:
        self.position = after
        self.ended = False
        self._only = tuple(only)
        self._live = live

    @property
    def options(self) -> dict[str, Any]:
        """The arguments with which an HTTP client asks for what follows `position`."""
        return {
            "params": {"only": list(self._only)} if self._only else None,
            "headers": {
                "Accept": "text/event-stream",
                "Cache-Control": "no-store",
                **({"Last-Event-ID": str(self.position)} if self.position else {}),
            },
            "timeout": _TIMEOUT,
        }

    def take(self, event: httpx2.ServerSentEvent, response: httpx2.Response) -> StreamItem | None:
        """Returns the event as an item and moves `position` to it. Returns None for a kind that nobody asked for.

        Raises ServerError if the event's data is not of its kind.
        """
        try:
            item = self._live_item(event) if event.event == "live" else _item(event)
        except ValidationError as error:
            raise unexpected(response, f"{event.event} event", error) from None
        if item is not None:
            self.position, self.ended = item.position, item.kind == "end"
        return item

    def _live_item(self, event: httpx2.ServerSentEvent) -> StreamItem | None:
        view = LiveLine.model_validate_json(event.data)
        return StreamItem(self.position, "live", view) if self._live else None


def followed_kinds(*, logs: bool, metrics: bool) -> list[StoredKind]:
    """Returns the kinds that `follow` yields."""
    kinds: list[StoredKind] = [*get_args(EventKind)]
    if logs:
        kinds.append("log")
    if metrics:
        kinds.append("metric")
    return kinds


_VIEWS: dict[str, type[EventView | LogLine | EndView | MetricView]] = {
    **dict.fromkeys(get_args(EventKind), EventView),
    "metric": MetricView,
    "log": LogLine,
    "end": EndView,
}


def _item(event: httpx2.ServerSentEvent) -> StreamItem | None:
    if event.event not in _VIEWS or not event.data or not event.id.isdecimal():
        return None
    view = _VIEWS[event.event].model_validate_json(event.data)
    return StreamItem(int(event.id), event.event, view)  # pyright: ignore[reportArgumentType] - a key of _VIEWS
