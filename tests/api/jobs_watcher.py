"""A reader of the stream of several jobs, as a page of a browser reads it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
import http.client
import json
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from tests.api.service import TOKEN


@dataclass(frozen=True)
class Heard:
    """One event. `id` is empty where it has none."""

    id: str
    event: str
    data: dict[str, Any]


@dataclass
class Items:
    """What was heard of one job, over all connections, in the order in which it came."""

    points: list[tuple[str, int, Any, int]] = field(default_factory=list[tuple[str, int, Any, int]])
    """Key, step, value and attempt."""
    lines: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    events: list[int] = field(default_factory=list[int])
    position: int = 0

    def take(self, data: dict[str, Any]) -> None:
        assert data["position"] > self.position
        self.position = data["position"]
        for key, columns in data["metrics"].items():
            assert set(columns) == {"step", "value", "time", "attempt"}
            steps, values, attempts = columns["step"], columns["value"], columns["attempt"]
            assert len(columns["time"]) == len(steps)
            self.points += [(key, *rest) for rest in zip(steps, values, attempts, strict=True)]
        self.lines += [(line["line"], line["text"]) for line in data["logs"]]
        self.events += [event["seq"] for event in data["events"]]


class JobsWatcher:
    """One connection, as an iterator of its events."""

    def __init__(
        self,
        url: str,
        jobs: Sequence[str] = (),
        *,
        topics: Sequence[str] = (),
        kinds: Sequence[str] = (),
        after: str = "",
        token: str = TOKEN,
    ) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        query = urlencode({"job": [*jobs], "topic": [*topics], "kind": [*kinds]}, doseq=True)
        headers = {"Authorization": f"Bearer {token}", **({"Last-Event-ID": after} if after else {})}
        self._connection.request("GET", f"/v1/stream?{query}", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Heard:
        fields: dict[str, str] = {}
        try:
            while raw := self._answer.readline():
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "event" in fields:
                    return Heard(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
        except (http.client.HTTPException, OSError):
            pass  # the server was killed
        raise StopIteration

    def until(self, event: str) -> Heard:
        """Returns the next event of this name."""
        return next(heard for heard in self if heard.event == event)
