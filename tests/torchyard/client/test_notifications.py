"""The operations on targets of notifications, by both clients."""

import json
from typing import Any

import pytest

from tests.torchyard.client.answers import NOW, page
from tests.torchyard.client.fake_server import Answer, FakeServer
from torchyard.client import Client
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.notifications.kinds import EventKind

PATH = "/v1/notifications/targets"
ID, OTHER = "ntf_0192a0", "ntf_0192b0"


def target(**changes: Any) -> dict[str, Any]:
    plain = {"id": ID, "owner": "ada", "name": "alerts", "kind": "webhook", "address": "https://example.com/…"}
    return {**plain, "on": ["job.failed"], "jobs": "all", "scope": "own", "created_at": NOW, **changes}


def message(**changes: Any) -> dict[str, Any]:
    plain = {"id": "msg_1", "target_id": ID, "kind": "test", "state": "waiting", "title": "a test", "text": ""}
    return {**plain, "created_at": NOW, "attempts": 0, **changes}


def test_a_target_is_added_changed_tried_and_removed(server: FakeServer, client: Client) -> None:
    server.on(PATH, Answer(target(secret="whsec_a"), 201))
    made = client.notifications.add("alerts", "https://example.com/x", on=[EventKind.JOB_FAILED])
    assert made.secret == "whsec_a"
    sent = {"name": "alerts", "address": "https://example.com/x", "kind": "webhook", "on": ["job.failed"]}
    assert json.loads(server.requests[-1].body) == {**sent, "jobs": "all", "scope": "own"}
    server.on(f"{PATH}/{ID}", target(jobs="named"))
    assert client.notifications.change(ID, jobs="named").jobs == "named"
    assert json.loads(server.requests[-1].body) == {"jobs": "named"}
    server.on(f"{PATH}/{ID}/test", Answer(message(), 202))
    assert client.notifications.send_test(ID).state == "waiting"
    server.on(f"{PATH}/{ID}", Answer(b"", 204))
    client.notifications.remove(ID)
    assert server.requests[-1].method == "DELETE"


def test_a_target_is_found_by_its_name_its_id_or_the_beginning_of_that(server: FakeServer, client: Client) -> None:
    server.on(PATH, page([target(), target(id=OTHER, name="ntf_0192a0")]))
    for ref, found in {"alerts": ID, OTHER: OTHER, "ntf_0192b": OTHER, "ntf_0192a0": OTHER}.items():
        assert client.notifications.find(ref, user="ada").id == found
    assert server.requests[-1].query == {"user": ["ada"]}
    with pytest.raises(NotFound):
        client.notifications.find("nothing")
    with pytest.raises(Conflict):
        client.notifications.find("ntf_0192")


def test_messages_are_listed_page_by_page(server: FakeServer, client: Client) -> None:
    more, last = page([message()], more=True, next="x"), page([message(id="msg_0", state="delivered")])
    server.on("/v1/notifications/messages", more, last)
    found = client.notifications.messages(target_id=ID)
    assert [each.id for each in found] == ["msg_1", "msg_0"]
    assert [request.query.get("target") for request in server.requests] == [[ID], [ID]]
