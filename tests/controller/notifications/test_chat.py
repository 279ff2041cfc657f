"""What Slack and Discord get: texts of jobs as they are, that call nobody and lead nowhere."""

import json
from typing import Any

import pytest

from controller.notifications import channels
from controller.notifications.channels import LONGEST, Words

LINK = "https://torchyard.example.com/jobs/job_1"


def _slack(text: str) -> dict[str, Any]:
    return json.loads(channels.slack(Words((text,), LINK)))


def _discord(text: str) -> dict[str, Any]:
    return json.loads(channels.discord(Words((text,), LINK)))


@pytest.mark.parametrize(
    "text", ["<!channel>", "<!here|x>", "<@U012>", "<#C01>", "<https://evil.example|click>", "&lt;!channel&gt;"]
)
def test_slack_gets_no_mention_and_no_link_of_a_job(text: str) -> None:
    body = _slack(text)
    shown, link = body["text"].split("\n")
    assert "<" not in shown and ">" not in shown
    assert shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\u200b", "") == text
    assert link == LINK
    assert (body["mrkdwn"], body["unfurl_links"], body["unfurl_media"]) == (False, False, False)


@pytest.mark.parametrize("name", ["@channel", "@here", "@all", "@everyone", "a@b"])
def test_no_at_sign_begins_a_name(name: str) -> None:
    for found in (_slack(name)["text"], _discord(name)["content"]):
        assert f"@{name.partition('@')[2]}" not in found


@pytest.mark.parametrize(
    "text",
    [
        *("**bold**", "__x__", "~~x~~", "`code`", "||spoiler||", "# head", "-# small", "> quote", "1. list", "- list"),
        *("[click](https://evil.example)", "<https://evil.example>", "https://evil.example", "<@1>", "<@&1>", "<#1>"),
        *("<t:0:R>", "<:a:1>", "\\*", "```\nx\n```"),
    ],
)
def test_discord_shows_a_text_as_it_is(text: str) -> None:
    """A backslash before each sign that has a meaning: without these, the text is back."""
    body = _discord(text)
    shown, link = body["content"].split("\n")
    pairs = shown.replace("\u200b", "")
    plain, escaped = "", False
    for sign in pairs:
        if sign == "\\" and not escaped:
            escaped = True
            continue
        assert escaped or sign.isalnum() or sign in " @&/", sign
        plain, escaped = plain + sign, False
    assert plain == " ".join(text.split())
    assert link == LINK
    assert (body["allowed_mentions"], body["flags"]) == ({"parse": []}, 4)


@pytest.mark.parametrize("sign", ["*", "@", "&", "<", "ü", "a"])
def test_a_long_text_is_cut_to_what_the_servers_take(sign: str) -> None:
    content = _discord(sign * 100_000)["content"]
    assert len(content) <= channels.MOST_DISCORD and content.endswith(LINK)
    assert len(_slack(sign * 100_000)["text"]) <= 6 * LONGEST


def test_lines_of_a_text_stay_together() -> None:
    for found in (_slack("a\r\nb\u2028c\x00\u202ed")["text"], _discord("a\r\nb\u2028c\x00\u202ed")["content"]):
        assert found == f"a b cd\n{LINK}"
