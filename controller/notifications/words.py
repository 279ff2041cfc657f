"""What a message says to people, from the JSON that programs get."""

from collections.abc import Mapping
from dataclasses import dataclass
import re
from typing import Any

from torchyard.contract.text import printable

LONGEST = 900
"""Characters of what a message says, at most. Escaped for Slack or Discord, that still fits."""

_PLACES = {"job": "jobs", "sweep": "sweeps"}


@dataclass(frozen=True)
class Words:
    """Lines, with names and texts of users in them, and where to look."""

    lines: tuple[str, ...]
    link: str | None = None

    @property
    def text(self) -> str:
        """The lines, cut to `LONGEST`, without characters that change how a line is shown."""
        whole = "\n".join(filter(None, map(_plain, self.lines)))
        return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


def words(body: Mapping[str, Any], *, public_url: str) -> Words:
    """Returns what the message of this body says. `public_url`: empty for no link."""
    data = body["data"]
    listed = [item["title"] for item in data.get("items", [])]
    return Words((data["title"], data["text"], *listed), _link(data, public_url) if public_url else None)


def _link(data: Mapping[str, Any], public_url: str) -> str:
    found = next((f"/{place}/{data[kind]['id']}" for kind, place in _PLACES.items() if kind in data), "/")
    return f"{public_url}{found}"


def _plain(text: str) -> str:
    return printable(re.sub(r"\s+", " ", text)).replace("\ufffd", "").strip()
