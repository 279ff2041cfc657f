"""Messages in the forms of Slack's and Discord's webhooks. Texts of users are shown as they are, and call nobody."""

import json
import re

from controller.notifications.words import Words

HEADERS = {"Content-Type": "application/json"}
MOST_DISCORD = 2000
"""Characters that Discord takes."""

_UNCALLED = "@\u200b"
"""An @ that begins no name, with a space that is not seen: servers that take Slack's form have names of their own."""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~:>])")
_NO_PREVIEWS = 1 << 2
"""Discord's flag SUPPRESS_EMBEDS."""


def slack(words: Words) -> bytes:
    """Returns the body for Slack, Mattermost or Rocket.Chat."""
    lines = [_for_slack(words.text), *filter(None, [words.link])]
    return _json({"text": "\n".join(lines), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False})


def discord(words: Words) -> bytes:
    """Returns the body for Discord."""
    lines = [_for_discord(words.text), *filter(None, [words.link])]
    content = "\n".join(lines)[:MOST_DISCORD]
    return _json({"content": content, "allowed_mentions": {"parse": []}, "flags": _NO_PREVIEWS})


def _for_slack(text: str) -> str:
    """Slack gives a meaning to these three characters alone: `<!channel>` and `<https://…|name>` begin with one."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", _UNCALLED)


def _for_discord(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text).replace("@", _UNCALLED)


def _json(body: dict[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
