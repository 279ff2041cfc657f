"""Who may do what: roles, scopes, and whose object it is."""

from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import pairwise
import re
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
import pytest

from api.auth.workers import authenticate_sender, authenticate_worker
from store.output.facts import NewArtifact, NewMedia
from tests.api.service import ApiFixture
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role, Scope

PUBLIC = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/docs/{path:path}"),
    ("GET", "/docs/rest"),
    ("GET", "/docs/rest/{name}"),
    ("POST", "/v1/session"),
    ("POST", "/v1/session/codes/check"),
    ("POST", "/v1/join"),
    ("GET", "/install"),
    ("GET", "/install/{sha256}/{name}"),
    *(
        ("GET", path)
        for path in (
            "/",
            "/jobs",
            "/jobs/{rest:path}",
            "/sweeps",
            "/sweeps/{rest:path}",
            "/compare",
            "/models",
            "/schedules",
            "/settings",
            "/submit",
            "/workers",
            "/workers/{rest:path}",
            "/login",
            "/assets/{name:path}",
        )
    ),
}
"""What needs no token: health, the documentation, the page, the login of a browser, who has a code, and wheels."""

READS: dict[str, str] = {
    "job": "/v1/jobs/{job}",
    "events": "/v1/jobs/{job}/events",
    "metrics": "/v1/jobs/{job}/metrics",
    "logs": "/v1/jobs/{job}/logs",
    "advice": "/v1/jobs/{job}/advice",
    "stream": "/v1/jobs/{job}/stream",
    "checkpoints": "/v1/jobs/{job}/checkpoints",
    "checkpoint": "/v1/jobs/{job}/checkpoints/latest",
    "download": "/v1/jobs/{job}/checkpoints/latest/download",
    "file": "/v1/jobs/{job}/checkpoints/latest/files/state.pt",
    "artifacts": "/v1/jobs/{job}/artifacts",
    "artifact": "/v1/jobs/{job}/artifacts/a.txt",
    "media": "/v1/jobs/{job}/media",
    "code": "/v1/jobs/{job}/code",
    "packages": "/v1/jobs/{job}/packages",
}
CHANGES: dict[str, tuple[str, str, int]] = {
    "change": ("PATCH", "/v1/jobs/{job}", 200),
    "cancel": ("POST", "/v1/jobs/{job}/cancel", 409),
    "pause": ("POST", "/v1/jobs/{job}/pause", 409),
    "resume": ("POST", "/v1/jobs/{job}/resume", 409),
    "delete": ("DELETE", "/v1/jobs/{job}", 204),
}
"""Method, path, and the status for who may change the job, which has ended."""
HOOK = {"name": "hook", "kind": "webhook", "address": "https://example.com/"}
FOR_ROLES: list[tuple[str, str, Any, Role, int]] = [
    ("POST", "/v1/jobs", {"trainer": "image-classification"}, Role.MEMBER, 201),
    ("GET", "/v1/jobs", None, Role.VIEWER, 200),
    ("GET", "/v1/jobs/columns", None, Role.VIEWER, 200),
    ("GET", "/v1/bundles", None, Role.VIEWER, 200),
    ("GET", f"/v1/bundles/{'0' * 64}", None, Role.VIEWER, 404),
    ("GET", f"/v1/bundles/{'0' * 64}/content", None, Role.VIEWER, 404),
    ("PUT", f"/v1/bundles/{'0' * 64}?size=1", None, Role.MEMBER, 202),
    ("DELETE", f"/v1/bundles/{'0' * 64}", None, Role.MEMBER, 204),
    ("GET", "/v1/models", None, Role.VIEWER, 200),
    ("GET", "/v1/models/alice/none", None, Role.VIEWER, 404),
    ("POST", "/v1/models", {"name": "a", "from": f"job_{'0' * 32}/best"}, Role.MEMBER, 404),
    ("PATCH", "/v1/models/alice/none", {"visibility": "team"}, Role.MEMBER, 404),
    ("DELETE", "/v1/models/alice/none", None, Role.MEMBER, 404),
    ("GET", "/v1/notifications/targets", None, Role.VIEWER, 200),
    ("GET", "/v1/notifications/messages", None, Role.VIEWER, 200),
    ("GET", f"/v1/notifications/targets/ntf_{'0' * 32}", None, Role.VIEWER, 404),
    ("POST", "/v1/notifications/targets", HOOK, Role.MEMBER, 201),
    ("POST", "/v1/notifications/targets", HOOK | {"name": "all", "scope": "all"}, Role.ADMIN, 201),
    ("PATCH", f"/v1/notifications/targets/ntf_{'0' * 32}", {"jobs": "all"}, Role.MEMBER, 404),
    ("POST", f"/v1/notifications/targets/ntf_{'0' * 32}/test", None, Role.MEMBER, 404),
    ("DELETE", f"/v1/notifications/targets/ntf_{'0' * 32}", None, Role.MEMBER, 404),
    ("GET", "/v1/queue", None, Role.VIEWER, 200),
    ("GET", "/v1/workers", None, Role.VIEWER, 200),
    ("GET", "/v1/workers/wrk_00000000000000000000000000000000/history", None, Role.VIEWER, 404),
    ("GET", "/v1/usage", None, Role.VIEWER, 200),
    ("GET", "/v1/usage/disk", None, Role.VIEWER, 200),
    ("GET", "/v1/trainers", None, Role.VIEWER, 200),
    ("GET", "/v1/spec/schema", None, Role.VIEWER, 200),
    ("POST", "/v1/jobs/actions", {"action": "cancel", "filter": {}}, Role.MEMBER, 200),
    ("GET", "/v1/me", None, Role.VIEWER, 200),
    ("PATCH", "/v1/me/preferences", {"preferences": {}}, Role.VIEWER, 204),
    ("GET", "/v1/tokens", None, Role.VIEWER, 200),
    ("GET", "/v1/sessions", None, Role.VIEWER, 200),
    ("DELETE", f"/v1/sessions/ses_{'0' * 32}", None, Role.VIEWER, 404),
    ("GET", "/v1/quotas/users/alice", None, Role.VIEWER, 200),
    ("POST", "/v1/workers/wrk_00000000000000000000000000000000/drain", None, Role.OPERATOR, 404),
    ("DELETE", f"/v1/workers/wrk_{'0' * 32}", None, Role.OPERATOR, 404),
    ("PUT", f"/v1/workers/wrk_{'0' * 32}/users", {"users": ["alice"]}, Role.OPERATOR, 404),
    ("GET", "/metrics", None, Role.OPERATOR, 200),
    ("GET", "/v1/users", None, Role.ADMIN, 200),
    ("POST", "/v1/users", {"name": "carol"}, Role.ADMIN, 201),
    ("PATCH", "/v1/users/bob", {"role": "viewer"}, Role.ADMIN, 200),
    ("GET", "/v1/quotas", None, Role.ADMIN, 200),
    ("PUT", "/v1/quotas/users/bob", {"devices": 1}, Role.ADMIN, 204),
    ("PUT", "/v1/quotas/roles/member", {"devices": 1}, Role.ADMIN, 204),
    ("DELETE", "/v1/quotas/users/bob", None, Role.ADMIN, 204),
    ("DELETE", "/v1/quotas/roles/member", None, Role.ADMIN, 204),
    ("GET", "/v1/quotas/users/bob", None, Role.ADMIN, 200),
    ("GET", "/v1/tokens?user=bob", None, Role.ADMIN, 200),
    ("POST", "/v1/tokens", {"user": "bob"}, Role.ADMIN, 201),
    ("POST", "/v1/codes", {"kind": "worker", "name": "box-b"}, Role.ADMIN, 201),
    ("GET", "/v1/audit", None, Role.ADMIN, 200),
]
"""Method, path, body, the least role that may do it, and the status for that role."""


def scopes_of(dependant: Dependant) -> Iterator[Scope]:
    if (scope := getattr(dependant.call, "scope", None)) is not None:
        yield scope
    for inner in dependant.dependencies:
        yield from scopes_of(inner)


def is_guarded(dependant: Dependant) -> bool:
    """Whether a route asks for the scope of a user, or for the token of a worker."""
    return asks_for_worker(dependant) or any(True for _ in scopes_of(dependant))


def asks_for_worker(dependant: Dependant) -> bool:
    asked = {authenticate_worker, authenticate_sender}
    return any(inner.call in asked or asks_for_worker(inner) for inner in dependant.dependencies)


def test_every_route_requires_a_scope_or_is_public(service: ApiFixture) -> None:
    open_routes = {
        (method, context.path)
        for context in iter_route_contexts(service.app.routes)
        for method in context.methods or ()
        if not (isinstance(context.original_route, APIRoute) and is_guarded(context.original_route.dependant))
    }
    assert {(method, path) for method, path in open_routes if method != "HEAD"} == PUBLIC


@pytest.fixture
def job(service: ApiFixture) -> str:
    """A job of bob's that has ended, with a checkpoint, a log line and a metric."""
    service.act_as("bob")
    job_id = service.submit(name="secret-name", labels={"for": "acme"})["id"]
    claim = service.start(job_id)
    service.record(claim, checkpoints=[service.new_checkpoint(step=1, files={"state.pt": b"state"}, val_loss=0.5)])
    blob = service.app.state.services.store.blobs.add(BytesIO(b"left"))
    service.record(claim, artifacts=[NewArtifact("a.txt", blob.size, blob.sha256)])
    service.record(claim, media=[NewMedia("secret-name", "text", 1, 0, data={"text": "t"})])
    service.end(claim, reason=EndReason.COMPLETED)
    return job_id


@pytest.mark.parametrize("visibility", ["private", "team"])
def test_whose_objects_each_role_may_read_and_change(service: ApiFixture, job: str, visibility: str) -> None:
    service.client.patch(f"/v1/jobs/{job}", json={"visibility": visibility})
    *others, admin = Role
    assert admin is Role.ADMIN
    for role in others:
        service.act_as(role, role)
        readable = visibility == "team"
        for what, path in READS.items():
            answer = service.client.get(path.format(job=job))
            assert answer.status_code == (200 if readable else 404), (role, what)
            assert readable or "secret-name" not in answer.text, (role, what)
        expected = 403 if readable or role is Role.VIEWER else 404
        assert [*change(service, job)] == [(what, expected) for what in CHANGES], role
    service.act_as("bob")
    assert read(service, job) == dict.fromkeys(READS, 200)
    service.act_as("alice", admin)
    assert read(service, job) == dict.fromkeys(READS, 200)
    assert [*change(service, job)] == [(what, status) for what, (_, _, status) in CHANGES.items()]
    service.act_as("bob")
    assert read(service, job) == dict.fromkeys(READS, 404)


def read(service: ApiFixture, job: str) -> dict[str, int]:
    """Returns the status of each answer."""
    return {what: service.client.get(path.format(job=job)).status_code for what, path in READS.items()}


def change(service: ApiFixture, job: str) -> Iterator[tuple[str, int]]:
    """Does each, and yields the status of its answer."""
    for what, (method, path, _) in CHANGES.items():
        body = {"labels": {}} if what == "change" else None
        yield what, service.client.request(method, path.format(job=job), json=body).status_code


@pytest.mark.parametrize("role", list(Role))
def test_stacks_are_for_the_owner_and_administrators(service: ApiFixture, role: Role) -> None:
    service.act_as("bob")
    path = {what: f"/v1/jobs/{service.submit(visibility=what)['id']}/stacks" for what in ("private", "team")}
    service.start(path["team"].split("/")[3])
    assert service.client.post(path["team"]).status_code == 202
    assert service.client.get(path["team"]).status_code == 200
    service.act_as("alice", role)
    admin = role is Role.ADMIN
    assert service.client.get(path["team"]).status_code == (200 if admin else 403)
    assert service.client.post(path["team"]).status_code == (202 if admin else 403)
    assert service.client.get(path["private"]).status_code == (409 if admin else 404)
    refused = 403 if role is Role.VIEWER else 404  # a viewer's token cannot ask for anything
    assert service.client.post(path["private"]).status_code == (409 if admin else refused)


def test_what_each_role_may_do(service: ApiFixture) -> None:
    """The least role that may do it may, and the one below that may not: each has the scopes of those below it."""
    order = list(Role)
    assert all(below.scopes < role.scopes for below, role in pairwise(order))
    service.act_as("bob")
    service.act_as("alice", order[0])
    for place, role in enumerate(order):
        service.act_as("admin")
        assert service.client.patch("/v1/users/alice", json={"role": role}).status_code == 200
        service.act_as("alice")
        for method, path, body, least, status in FOR_ROLES:
            if least in order[place : place + 2]:
                expected = status if role is least else 403
                assert service.client.request(method, path, json=body).status_code == expected, (method, path, role)


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OPERATOR])
def test_lists_show_of_another_users_private_job_what_the_role_may_see(
    service: ApiFixture, job: str, role: Role
) -> None:
    service.start(service.submit(name="secret-two", labels={"for": "acme"})["id"])
    service.submit(name="secret-three", env={"TZ": "acme"})
    service.act_as("alice", role)
    answers = {path: service.client.get(path) for path in ("/v1/jobs", "/v1/queue", "/v1/workers")}
    text = "".join(answer.text for answer in answers.values())
    assert "acme" not in text
    (worker,) = answers["/v1/workers"].json()["data"]
    holder = worker["devices"][0]["holder"]
    (waiting,) = answers["/v1/queue"].json()["data"]
    assert (holder["owner"], holder["state"], waiting["owner"], waiting["reason"]) == ("bob", "running", "bob", None)
    assert holder["since"]
    listed = answers["/v1/jobs"].json()["data"]
    if role is Role.MEMBER:
        assert listed == []
        assert re.search("secret|job_[0-9a-f]{32}", text) is None
        return
    assert (holder["name"], waiting["name"]) == ("secret-two", "secret-three")
    assert {(row["name"], row["state"]) for row in listed} == {
        ("secret-name", "succeeded"),
        ("secret-two", "running"),
        ("secret-three", "queued"),
    }
    for row in listed:
        assert (row["labels"], row["metrics"], row["best"], row["error"]) == ({}, {}, None, None)
        assert row["status_reason"]["message"] == ""


def test_a_token_may_do_no_more_than_its_scopes(service: ApiFixture) -> None:
    service.act_as("alice")
    made = service.client.post("/v1/tokens", json={"scopes": ["jobs:read"]}).json()
    service.client.headers["Authorization"] = f"Bearer {made['token']}"
    assert service.get("/v1/me")["scopes"] == ["account", "jobs:read"]
    assert service.client.get("/v1/jobs").status_code == 200
    refused = service.client.post("/v1/jobs", json={"trainer": "image-classification"})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "jobs:write" in refused.json()["detail"]
    assert service.client.post("/v1/tokens", json={}).status_code == 403


def test_an_operator_does_not_find_private_jobs_by_labels_that_are_hidden(service: ApiFixture) -> None:
    service.act_as("alice")
    service.submit(labels={"project": "x"})
    shared = service.submit(labels={"project": "x"}, visibility="team")["id"]
    service.act_as("opal", Role.OPERATOR)
    assert len(service.get("/v1/jobs")["data"]) == 2
    assert [row["id"] for row in service.get("/v1/jobs", label="project:x")["data"]] == [shared]


def test_a_job_has_the_visibility_of_its_spec_else_the_servers(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert service.submit()["visibility"] == "private"
    assert service.submit(visibility="team")["visibility"] == "team"
    services = service.app.state.services
    shared = services.settings.model_copy(update={"visibility": "team"})
    monkeypatch.setattr(service.app.state, "services", replaced(services, settings=shared))
    assert service.submit()["visibility"] == "team"
    assert service.submit(visibility="private")["visibility"] == "private"


def replaced(services: Any, **changes: Any) -> Any:
    make: Callable[..., Any] = type(services)
    return make(**{**vars(services), **changes})
