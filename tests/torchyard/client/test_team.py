"""The operations on users, tokens, quotas and the audit, by both clients."""

from datetime import datetime, timedelta, timezone
import json
from typing import Any

import pytest

from tests.torchyard.client.answers import NOW, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from torchyard.client import Client
from torchyard.contract.errors import Forbidden, ServerUnreachable
from torchyard.contract.team.roles import Resource, Role, Scope

USER = {"name": "a/b", "role": "member", "created_at": NOW}
TOKEN_VIEW = {"id": "tok_1", "user": "ada", "name": "laptop", "scopes": ["account"], "created_at": NOW}


def test_me_says_whose_token_is_sent(server: FakeServer, client: Client) -> None:
    server.on("/v1/me", {"name": "ada", "role": "viewer", "scopes": ["account"]})
    me = client.me()
    assert (me.name, me.role, me.scopes) == ("ada", Role.VIEWER, [Scope.ACCOUNT])


def test_a_login_code_is_asked_for(server: FakeServer, client: Client) -> None:
    server.on("/v1/session/codes", Answer({"code": "c0de", "expires_at": NOW, "has_page": True}, 201))
    assert client.login_code().code == "c0de"
    assert server.requests[-1].method == "POST"
    server.on("/v1/session/codes", problem("forbidden", 403))
    with pytest.raises(Forbidden):
        client.login_code()


def test_users_are_added_changed_and_listed(server: FakeServer, client: Client) -> None:
    server.on("/v1/users", Answer(USER, 201), page([USER], more=True, next="a/b"), page([{**USER, "name": "c"}]))
    assert client.users.add("a/b", role=Role.VIEWER).name == "a/b"
    assert _body(server) == {"name": "a/b", "role": "viewer"}
    assert [user.name for user in client.users.list()] == ["a/b", "c"]
    server.on("/v1/users/a%2Fb", USER)
    client.users.change("a/b", disabled=True, jobs="cancel")
    assert (server.requests[-1].method, _body(server)) == ("PATCH", {"disabled": True, "jobs": "cancel"})
    client.users.change("a/b", role=Role.ADMIN)
    assert _body(server) == {"role": "admin"}


def test_tokens_are_made_listed_and_revoked(server: FakeServer, client: Client) -> None:
    server.on("/v1/tokens", Answer({**TOKEN_VIEW, "token": "ty_1_x"}, 201))
    assert client.tokens.make().token == "ty_1_x"
    assert _body(server) == {"name": "token", "user": None, "scopes": None, "lifetime": "90d"}
    client.tokens.make(name="laptop", user="ada", scopes=[Scope.JOBS_READ], lifetime=timedelta(hours=1))
    assert _body(server) == {"name": "laptop", "user": "ada", "scopes": ["jobs:read"], "lifetime": "1h"}
    client.tokens.make(lifetime=None)
    assert _body(server)["lifetime"] is None
    server.on("/v1/tokens", page([TOKEN_VIEW]))
    assert [token.id for token in client.tokens.list(user="ada")] == ["tok_1"]
    assert server.requests[-1].query["user"] == ["ada"]
    server.on("/v1/tokens/tok_1", Answer(b"", 204))
    client.tokens.revoke("tok_1")
    assert server.requests[-1].method == "DELETE"


def test_quotas_are_set_shown_and_cleared(server: FakeServer, client: Client) -> None:
    server.on("/v1/quotas/users/ada", {"user": "ada", "uses": [{"resource": "devices", "limit": 4, "used": 1}]})
    assert [(use.resource, use.limit, use.used) for use in client.quotas.get("ada").uses] == [(Resource.DEVICES, 4, 1)]
    server.on("/v1/quotas/users/ada", Answer(b"", 204))
    client.quotas.set("ada", limits={Resource.DEVICES: 4, Resource.QUEUED: None})
    assert (server.requests[-1].method, _body(server)) == ("PUT", {"devices": 4, "queued": None})
    client.quotas.clear("ada", resources=[Resource.DEVICES, Resource.QUEUED])
    assert (server.requests[-1].method, server.requests[-1].query) == ("DELETE", {"resource": ["devices", "queued"]})
    server.on("/v1/quotas/roles/member", Answer(b"", 204))
    client.quotas.clear("member", kind="role")
    assert (server.requests[-1].path, server.requests[-1].query) == ("/v1/quotas/roles/member", {})
    server.on("/v1/quotas", page([{"kind": "role", "name": "member", "limits": {"devices": None}}]))
    assert [quota.limits for quota in client.quotas.list()] == [{Resource.DEVICES: None}]


def test_the_audit_is_filtered(server: FakeServer, client: Client) -> None:
    server.on("/v1/audit", page([_entry(2), _entry(1)], more=True, next="1"))
    assert [entry.id for entry in client.audit(who="ada", action="job.cancel", object="job_1", limit=2)] == [2, 1]
    query = {"who": ["ada"], "action": ["job.cancel"], "object": ["job_1"], "limit": ["2"]}
    assert [request.query for request in server.requests] == [query]


def test_the_audit_is_searched_by_outcome_and_time_over_pages_without_a_match(
    server: FakeServer, client: Client
) -> None:
    server.on("/v1/audit", page([], more=True, next="9"), page([_entry(2)]))
    noon = datetime(2026, 11, 27, 12, tzinfo=timezone(timedelta(hours=1)))
    assert [entry.id for entry in client.audit(outcome="ok", since=noon, until=noon)] == [2]
    first, second = [request.query for request in server.requests]
    assert (first["from"], first["to"], first["outcome"]) == (*[["2026-11-27T11:00:00+00:00"]] * 2, ["ok"])
    assert second["after"] == ["9"]


def test_what_may_not_arrive_twice_is_sent_once(server: FakeServer, client: Client) -> None:
    server.on("/v1/tokens", Answer(status=0), Answer({**TOKEN_VIEW, "token": "ty_1_x"}, 201))
    with pytest.raises(ServerUnreachable):
        client.tokens.make()
    server.on("/v1/users", Answer(status=0), Answer(USER, 201))
    with pytest.raises(ServerUnreachable):
        client.users.add("ada")
    assert len(server.requests) == 2


def test_what_the_caller_may_not_do_raises_forbidden(server: FakeServer, client: Client) -> None:
    server.on("/v1/users", problem("forbidden", 403))
    with pytest.raises(Forbidden):
        client.users.add("ada")


def _entry(number: int) -> dict[str, Any]:
    source = {"token_id": None, "address": "10.0.0.1", "request_id": "req_1"}
    return {"id": number, "time": NOW, "who": "ada", "action": "a", "object": "", "outcome": "ok", **source}


def test_usage_is_read_page_by_page(server: FakeServer, client: Client) -> None:
    figures = {"gpu_hours": 1.0, "cpu_slot_hours": 0.0, "gpu_utilization": None, "idle_gpu_hours": 0.0}
    row = {"owner": "ada", "label": None, "days": [{"day": "2026-01-31", **figures}], "period": figures}
    rows = [{**row, "total": figures}, {**row, "owner": "bob", "total": figures}]
    server.on("/v1/usage", page(rows[:1], more=True, next="YQBi"), page(rows[1:]))
    assert [found.owner for found in client.usage(by="label", days=7, owner="ada")] == ["ada", "bob"]
    assert server.requests[0].query == {"by": ["label"], "days": ["7"], "owner": ["ada"]}
    assert server.requests[1].query["after"] == ["YQBi"]


def test_views_of_the_page_are_saved_listed_and_removed(server: FakeServer, client: Client) -> None:
    view = {"owner": "ada", "name": "lr / bs", "query": "q=lr", "visibility": "team", "updated_at": NOW}
    server.on("/v1/saved-views", view, page([view]), Answer(b"", 204))
    assert client.saved_views.save("lr / bs", "q=lr", visibility="team").owner == "ada"
    assert (server.requests[-1].method, _body(server)["visibility"]) == ("PUT", "team")
    assert [saved.name for saved in client.saved_views.list()] == ["lr / bs"]
    client.saved_views.delete("lr / bs", owner="ada")
    assert (server.requests[-1].method, server.requests[-1].query["name"]) == ("DELETE", ["lr / bs"])


def _body(server: FakeServer) -> Any:
    return json.loads(server.requests[-1].body)
