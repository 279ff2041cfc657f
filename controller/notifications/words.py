"""What a message says to people, from the JSON that programs get."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import re
from typing import Any

from torchyard.contract.text import printable

LONGEST = 900
"""Characters of what a message says, at most. Escaped for Slack or Discord, that still fits."""

_Data = Mapping[str, Any]


@dataclass(frozen=True)
class Words:
    """A sentence, more lines, and where to look. Sentence and lines have texts of users in them."""

    title: str
    lines: tuple[str, ...] = ()
    link: str | None = None

    @property
    def text(self) -> str:
        """All but the link, cut to `LONGEST`, without characters that change how a line is shown."""
        whole = "\n".join(map(_plain, (self.title, *self.lines)))
        return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


def words(body: Mapping[str, Any], *, public_url: str) -> Words:
    """Returns what the message of this body says. `public_url`: empty for no link."""
    kind, data = str(body.get("type", "")), _part(body, "data")
    say = _SENTENCES.get(kind)
    title = say(data) if say else f"{kind}: {_name(_part(data, 'job'))}"
    return Words(title, tuple(filter(None, (_why(data), _error(data), _best(data)))), _link(data, public_url))


def _job(what: str) -> Callable[[_Data], str]:
    return lambda data: f"{_name(_part(data, 'job'))} {what}"


def _sweep(data: _Data) -> str:
    return f"Sweep {_name(_part(data, 'sweep'))} has ended"


def _worker(data: _Data) -> str:
    return f"Worker {_name(_part(data, 'worker'))} is lost"


def _digest(data: _Data) -> str:
    return f"{data.get('count', 'Several')} more messages were left out: there were too many within an hour"


def _test(data: _Data) -> str:
    del data
    return "This is a test. Notifications of Torchyard arrive here."


_SENTENCES: dict[str, Callable[[_Data], str]] = {
    "job.started": _job("runs"),
    "job.succeeded": _job("succeeded"),
    "job.failed": _job("failed"),
    "job.cancelled": _job("was cancelled"),
    "job.paused": _job("is paused"),
    "job.requeued": _job("waits for another attempt"),
    "job.best": _job("has a new best checkpoint"),
    "job.warning": _job("needs a look"),
    "sweep.finished": _sweep,
    "worker.lost": _worker,
    "digest": _digest,
    "test": _test,
}


def _why(data: _Data) -> str:
    return str(data.get("message") or _part(data, "reason").get("message") or "")


def _error(data: _Data) -> str:
    error = _part(data, "error")
    return f"{error.get('code', 'error')}: {error['message']}" if error.get("message") else ""


def _best(data: _Data) -> str:
    best = _part(data, "best")
    if "metric" not in best:
        return ""
    value = best.get("value")
    shown = f"{value:.6g}" if isinstance(value, int | float) else str(value)
    return f"{best['metric']} is {shown}"


def _link(data: _Data, public_url: str) -> str | None:
    for kind, place in (("job", "jobs"), ("sweep", "sweeps")):
        found = _part(data, kind).get("id")
        if public_url and isinstance(found, str):
            return f"{public_url}/{place}/{found}"
    return None


def _name(subject: _Data) -> str:
    return str(subject.get("name") or subject.get("id") or "")


def _part(data: _Data, key: str) -> _Data:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _plain(text: str) -> str:
    return printable(re.sub(r"\s+", " ", text)).replace("\ufffd", "").strip()
