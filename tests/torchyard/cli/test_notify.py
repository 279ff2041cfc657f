"""The commands `notify`, against a real service, and against answers of a service whose controller sends."""

from functools import partial
import json
from typing import Any

import pytest

from store.db.database import Database
from store.notifications import deliver
from tests.approved import Approved
from tests.sessions import write
from tests.store.fixture import store_on
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team
from tests.torchyard.client.answers import page
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer
from tests.torchyard.client.test_notifications import ID, PATH, message, target

HOOK = "https://example.com/hook?key=hidden"


def test_a_target_is_added_shown_and_removed(team: Team, approved: Approved) -> None:
    run = partial(team.run, team.add("nora"))
    added = run("notifications", "add", "alerts", "-", "--on", "job.failed", "--on", "job.best", stdin=f"{HOOK}\n")
    first, second = added.stdout.splitlines()
    assert first == "alerts  webhook  https://example.com/…"
    assert second.startswith("secret  whsec_") and "not shown again" in added.stderr
    (listed,) = run("notifications", "ls").stdout.splitlines()[1:]
    assert listed.split("  ")[2].strip() == "nothing sent yet"
    assert "job.failed, job.best" in listed and "hidden" not in listed
    assert run("notifications", "set", "alerts", "--named").stdout == approved("output")
    refused = run("notifications", "add", "alerts", HOOK)
    assert refused.returncode == 1 and "already has a notification channel alerts" in refused.stderr
    mail = run("notifications", "add", "mail", "nora@example.com")
    assert mail.returncode == 1 and "only an administrator may enter an email address" in mail.stderr
    assert team.run("admin", "notifications", "add", "mail", "nora@example.com", "--user", "nora").returncode == 0
    assert [row["name"] for row in json.loads(run("notifications", "ls", "--json").stdout)] == ["alerts", "mail"]
    assert run("notifications", "rm", "alerts", "mail").stdout == approved("alerts removed mail")
    assert run("notifications", "show", "alerts").returncode == 1


def test_a_failure_is_seen_in_the_lists(team: Team) -> None:
    run = partial(team.run, team.add("olga"))
    run("notifications", "add", "alerts", HOOK)
    tried = run("notifications", "test", "alerts", "--timeout", "0")
    assert tried.returncode == 1 and "is a controller running?" in tried.stderr
    (waiting,) = json.loads(run("notifications", "show", "alerts", "--json").stdout)["messages"]
    write(store_on(Database(team.database_url)), deliver.mark_failed, waiting["id"], "it answered 500", again_in_s=None)
    (listed,) = run("notifications", "ls").stdout.splitlines()[1:]
    assert "ago: it answered 500; 1 given up" in listed
    *_, last = run("notifications", "show", "alerts").stdout.splitlines()
    assert last.split()[-1] == waiting["id"] and "  it answered 500  " in last and "given up" in last


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "delivered", "attempts": 1}, 0),
        ({"attempts": 1, "error": "it answered 500"}, 1),
    ],
)
def test_a_test_waits_for_its_result(
    server: FakeServer, changes: dict[str, Any], code: int, approved: Approved
) -> None:
    server.on(PATH, page([target()]))
    server.on(f"{PATH}/{ID}/test", Answer(message(), 202))
    server.on("/v1/notifications/messages", page([message()]), page([message(**changes)]))
    done = run_in_process(["notifications", "test", "alerts"], environment(server.url, TOKEN))
    assert (done.returncode, done.stdout + done.stderr) == (code, approved.of_row("said"))


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("https://hooks.slack.com/services/a/b/c", "slack"),
        ("https://discord.com/api/webhooks/1/a", "discord"),
        ("https://discord.com/", "webhook"),
        ("https://hooks.slack.com.example.com/services", "webhook"),
        ("ada@example.com", "mail"),
    ],
)
def test_the_kind_is_that_which_the_address_looks_like(server: FakeServer, address: str, kind: str) -> None:
    server.on(PATH, Answer(target(kind=kind), 201))
    done = run_in_process(["notifications", "add", "alerts", address], environment(server.url, TOKEN))
    assert done.returncode == 0, done.stderr
    assert json.loads(server.requests[-1].body)["kind"] == kind
