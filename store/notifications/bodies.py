"""The JSON of messages: what happened, to what, and when, in words and in fields."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from store.tables import Signal
from torchyard.contract.notifications import DIGEST, TEST, EventKind

MOST_ITEMS = 20
"""That a digest lists; it counts the others."""

_WORDS = {
    EventKind.JOB_STARTED: "runs",
    EventKind.JOB_SUCCEEDED: "succeeded",
    EventKind.JOB_FAILED: "failed",
    EventKind.JOB_CANCELLED: "was cancelled",
    EventKind.JOB_PAUSED: "is paused",
    EventKind.JOB_REQUEUED: "waits to run again",
    EventKind.JOB_BEST: "has a new best checkpoint",
    EventKind.JOB_WARNING: "has a warning",
    EventKind.SWEEP_FINISHED: "has ended",
    EventKind.WORKER_LOST: "is lost",
}


def of_signal(signal: Signal) -> dict[str, Any]:
    """Returns the body of the message that tells of a signal.

    `title` is written by the service, from names. `text` may be what a job wrote.
    """
    kind = EventKind(signal.kind)
    subject, name = next((key, signal.data[key]["name"]) for key in ("job", "sweep", "worker") if key in signal.data)
    text = signal.data.get("text") or signal.data.get("reason", {}).get("message", "")
    title = f"{subject} {name} {_WORDS[kind]}"
    return _body(kind, signal.time, {"title": title, "text": text, **signal.data})


def of_test(*, time: int, name: str) -> dict[str, Any]:
    """Returns the message by which a user tries a target."""
    return _body(TEST, time, {"title": f"a test of {name}", "text": "Torchyard can send you messages."})


def empty_digest(*, time: int) -> dict[str, Any]:
    """Returns a digest of nothing yet, which stands for messages from that time on."""
    return _body(DIGEST, time, {"title": "", "text": "", "count": 0, "kinds": {}, "items": []})


def with_one_more(digest: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the digest with a message that is not sent by itself."""
    data, new = digest["data"], message["data"]
    count = data["count"] + 1
    kinds = {**data["kinds"], message["type"]: data["kinds"].get(message["type"], 0) + 1}
    items = data["items"]
    if len(items) < MOST_ITEMS:
        items = [*items, {"type": message["type"], "timestamp": message["timestamp"], "title": new["title"]}]
    listed = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    words = {"title": f"{count} more message{'' if count == 1 else 's'}", "text": listed}
    return {**digest, "data": {**words, "count": count, "kinds": kinds, "items": items}}


def _body(kind: str, time: int, data: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(time / 1_000_000, UTC)
    return {
        "type": str(kind),
        "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": data,
    }
