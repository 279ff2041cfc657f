"""How a message is written for each channel: JSON for webhooks, and words for Slack, Discord and mail.

Webhooks have the form of https://www.standardwebhooks.com: an id, a time stamp and a signature. In chats, texts of
users are shown as they are, and call nobody.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import hmac
import json
import re
from typing import Any

from torchyard.contract.wire.text import printable

JSON_HEADERS = {"Content-Type": "application/json"}
LONGEST = 900
"""Characters of what a message says, at most. Escaped for Slack or Discord, that still fits."""
MOST_DISCORD = 2000
"""Characters that Discord takes."""

_UNCALLED = "@\u200b"
"""An @ that begins no name, with a space that is not seen: servers that take Slack's form have names of their own."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~:>])")
_NO_PREVIEWS = 1 << 2
"""Discord's flag SUPPRESS_EMBEDS."""
_PATHS = {"job": "jobs", "sweep": "sweeps"}
_PREFIX = "whsec_"


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


def words_of(body: Mapping[str, Any], *, public_url: str) -> Words:
    """Returns what the message of this body says. `public_url`: empty for no link."""
    data = body["data"]
    listed = [item["title"] for item in data.get("items", [])]
    return Words((data["title"], data["text"], *listed), _link(data, public_url) if public_url else None)


def webhook_body(body: Mapping[str, Any]) -> bytes:
    """Returns the bytes of JSON that are signed and sent."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def webhook_headers(message_id: str, body: bytes, *, secret: str | None, now_s: int) -> dict[str, str]:
    """Returns the headers of a webhook. `secret`: `whsec_` and base64. Without one, nothing is signed."""
    headers = {**JSON_HEADERS, "webhook-id": message_id, "webhook-timestamp": str(now_s)}
    if secret is not None:
        headers["webhook-signature"] = f"v1,{_signature(secret, message_id, now_s, body)}"
    return headers


def slack(words: Words) -> bytes:
    """Returns the body for Slack, Mattermost or Rocket.Chat."""
    lines = [_for_slack(words.text), *filter(None, [words.link])]
    return _encode({"text": "\n".join(lines), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False})


def discord(words: Words) -> bytes:
    """Returns the body for Discord."""
    lines = [_for_discord(words.text), *filter(None, [words.link])]
    content = "\n".join(lines)[:MOST_DISCORD]
    return _encode({"content": content, "allowed_mentions": {"parse": []}, "flags": _NO_PREVIEWS})


def _link(data: Mapping[str, Any], public_url: str) -> str:
    path_of_subject = next((f"/{path}/{data[kind]['id']}" for kind, path in _PATHS.items() if kind in data), "/")
    return f"{public_url}{path_of_subject}"


def _plain(text: str) -> str:
    return printable(re.sub(r"\s+", " ", text)).replace("\ufffd", "").strip()


def _signature(secret: str, message_id: str, now_s: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = hmac.new(key, b"%s.%d.%s" % (message_id.encode(), now_s, body), hashlib.sha256)
    return base64.b64encode(signed.digest()).decode()


def _for_slack(text: str) -> str:
    """Slack gives a meaning to these three characters alone: `<!channel>` and `<https://…|name>` begin with one."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", _UNCALLED)


def _for_discord(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text).replace("@", _UNCALLED)


def _encode(body: dict[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
