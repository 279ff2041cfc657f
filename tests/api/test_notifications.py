"""Targets and messages over REST: who may make which, what is shown of them, and that secrets are shown once."""

import base64
from typing import Any

from controller.notifications.deliver import FanOut
from store.notifications import deliver
from tests.api.service import ApiFixture, both_databases
from tests.approved import Approved
from tests.rows import each_row
from tests.sessions import write
from torchyard.contract.team.roles import Role

HOOK = {"name": "hook", "kind": "webhook", "address": "https://example.com/path?key=hidden"}


def add(service: ApiFixture, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/notifications/targets", json=HOOK | body)
    assert answer.status_code == status, answer.text
    return answer.json()


def messages(service: ApiFixture, **params: Any) -> list[dict[str, Any]]:
    FanOut(service.app.state.services.store).run()
    return service.get("/v1/notifications/messages", **params)["data"]


@both_databases
def test_a_secret_is_shown_once_and_the_path_of_an_address_never(service: ApiFixture) -> None:
    service.act_as("alice")
    made = add(service)
    prefix, secret = made.pop("secret").split("_")
    assert (prefix, len(base64.b64decode(secret))) == ("whsec", 32)
    assert made["address"] == "https://example.com/…"
    assert made["on"] == ["job.succeeded", "job.failed", "sweep.finished"]
    path = f"/v1/notifications/targets/{made['id']}"
    for shown in (service.get(path), service.get("/v1/notifications/targets")["data"][0]):
        assert shown == made
    assert service.client.patch(path, json={"on": ["job.best"], "jobs": "named"}).json()["on"] == ["job.best"]
    assert service.client.delete(path).status_code == 204
    assert service.client.get(path).status_code == 404


def test_a_target_of_a_chat_has_no_secret(service: ApiFixture) -> None:
    assert add(service, kind="slack", address="https://hooks.slack.com/services/a/b")["secret"] is None


@both_databases
def test_only_an_administrator_enters_mail_addresses_and_listens_to_all(service: ApiFixture) -> None:
    service.act_as("alice")
    mail: dict[str, Any] = {"kind": "mail", "address": "alice@example.com"}
    assert add(service, 403, **mail)["code"] == "forbidden"
    assert add(service, 403, scope="all")["code"] == "forbidden"
    assert add(service, 403, user="admin")["code"] == "forbidden"
    assert service.client.get("/v1/notifications/targets", params={"user": "admin"}).status_code == 403
    service.act_as("root", Role.ADMIN)
    assert add(service, name="mail", user="alice", **mail)["address"] == "alice@example.com"
    assert add(service, 403, user="alice", scope="all")["code"] == "forbidden"
    assert add(service, 404, user="nobody")["code"] == "not_found"
    add(service, scope="all", on=["worker.lost"])
    assert [row["owner"] for row in service.get("/v1/notifications/targets", user="alice")["data"]] == ["alice"]


def test_a_narrow_token_of_an_administrator_enters_no_mail_address(service: ApiFixture) -> None:
    service.act_as("root", Role.ADMIN)
    narrow = service.client.post("/v1/tokens", json={"scopes": ["account", "jobs:read", "jobs:write"]}).json()["token"]
    headers = {"Authorization": f"Bearer {narrow}"}
    body = HOOK | {"kind": "mail", "address": "root@example.com"}
    assert service.client.post("/v1/notifications/targets", json=body, headers=headers).status_code == 403
    assert service.client.post("/v1/notifications/targets", json=HOOK, headers=headers).status_code == 201


@each_row(
    ("body", "field"),
    [
        ({"address": "https://user:pass@example.com/"}, ""),
        ({"name": "a b"}, "name"),
        ({"on": ["job.exploded"]}, "on.0"),
    ],
)
def test_what_is_wrong_with_a_target_is_named(service: ApiFixture, body: dict[str, Any], field: str) -> None:
    """What else is wrong: tests/torchyard/contract/notifications/test_requests.py."""
    problem = add(service, 422, **body)
    assert [error["field"] for error in problem["errors"]] == [field]


def test_another_users_target_is_not_found(service: ApiFixture) -> None:
    service.act_as("alice")
    path = f"/v1/notifications/targets/{add(service)['id']}"
    service.act_as("eve")
    assert service.client.get(path).status_code == 404
    assert service.client.patch(path, json={"jobs": "all"}).status_code == 404
    assert service.client.post(f"{path}/test").status_code == 404
    assert service.client.delete(path).status_code == 404
    service.act_as("root", Role.ADMIN)
    assert service.client.delete(path).status_code == 204


@both_databases
def test_messages_are_listed_with_what_became_of_them(service: ApiFixture, approved: Approved) -> None:
    service.act_as("alice")
    target = add(service, on=["job.cancelled"])
    job_id = service.submit(name="digits")["id"]
    service.client.post(f"/v1/jobs/{job_id}/cancel")
    (listed,) = messages(service)
    assert (listed["title"], listed["subject"]) == (approved("title"), job_id)
    assert (listed["state"], listed["target"], listed["attempts"]) == ("waiting", "hook", 0)
    tried = service.client.post(f"/v1/notifications/targets/{target['id']}/test")
    assert (tried.status_code, tried.json()["kind"]) == (202, "test")
    store = service.app.state.services.store
    (claimed,) = write(store, deliver.claim, store.secret_keys, count=10, lease_s=60)
    write(store, deliver.mark_failed, claimed.id, "it answered 500", again_in_s=None)
    (claimed,) = write(store, deliver.claim, store.secret_keys, count=10, lease_s=60)
    write(store, deliver.mark_delivered, claimed.id)
    assert [row["state"] for row in messages(service)] == ["delivered", "given_up"]
    page = service.get("/v1/notifications/messages", limit=1)
    assert page["has_more"]
    (older,) = service.get("/v1/notifications/messages", limit=1, after=page["next"])["data"]
    assert (older["id"], older["error"]) == (listed["id"], "it answered 500")
    (shown,) = service.get("/v1/notifications/targets")["data"]
    assert (shown["given_up"], shown["waiting"], shown["error"]) == (1, 0, None)
    service.act_as("eve")
    assert messages(service) == []
    assert service.client.get("/v1/notifications/messages", params={"user": "alice"}).status_code == 403


def test_a_spec_names_targets_of_its_owner_alone(service: ApiFixture) -> None:
    service.act_as("alice")
    add(service)
    service.submit(notify={"targets": ["hook"], "on": ["job.best"]})
    service.act_as("eve")
    refused = service.client.post("/v1/jobs", json={"trainer": "image-classification", "notify": {"targets": ["hook"]}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "notify.targets.0"


def test_what_is_done_to_targets_is_audited_without_the_path_of_the_address(service: ApiFixture) -> None:
    target = add(service)
    service.client.patch(f"/v1/notifications/targets/{target['id']}", json={"jobs": "named"})
    service.client.post(f"/v1/notifications/targets/{target['id']}/test")
    service.client.delete(f"/v1/notifications/targets/{target['id']}")
    entries = [row for row in service.get("/v1/audit")["data"] if row["action"].startswith("target.")]
    assert [row["action"] for row in entries] == ["target.remove", "target.test", "target.change", "target.add"]
    assert "hidden" not in str(entries)
