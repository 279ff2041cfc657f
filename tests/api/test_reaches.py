"""Opening, listing and ending reaches by requests. What goes through them: `test_reach_streams`."""

from dataclasses import replace
from typing import Any

import pytest

from store.attempts import read
from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from torchyard.contract.team.roles import Role

PROGRAM = {"kind": "program", "argv": ["nvidia-smi", "-L"]}


@both_databases
def test_a_reach_is_opened_listed_joined_again_and_ended(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    answer = service.client.post(f"/v1/jobs/{job_id}/reaches", json=PROGRAM)
    assert answer.status_code == 201, answer.text
    opened = answer.json()
    reach_id = opened["id"]
    assert (opened["job_id"], opened["attempt"], opened["meeting"]) == (job_id, 1, 1)
    assert opened["url"] == f"/v1/reaches/{reach_id}/stream?meeting=1"
    with service.database.read() as session:
        (order,) = read.read_wanted(session, claim).reaches
    assert (order.id, order.kind, order.secret) == (reach_id, "start", opened["secret"])
    assert order.order is not None
    assert order.order.argv == ["nvidia-smi", "-L"]
    (listed,) = service.get(f"/v1/jobs/{job_id}/reaches")["data"]
    assert (listed["id"], listed["kind"], listed["what"], listed["user"]) == (
        reach_id,
        "program",
        "program nvidia-smi",
        "admin",
    )
    assert "secret" not in listed
    again = service.client.post(f"/v1/reaches/{reach_id}/meetings")
    assert (again.status_code, again.json()["meeting"]) == (201, 2)
    assert again.json()["secret"] != opened["secret"]
    assert service.client.delete(f"/v1/reaches/{reach_id}").status_code == 204
    assert service.client.delete(f"/v1/reaches/{reach_id}").status_code == 404
    assert service.get(f"/v1/jobs/{job_id}/reaches")["data"] == []
    audited = [entry["action"] for entry in service.get("/v1/audit")["data"] if entry["action"].startswith("reach.")]
    assert audited == ["reach.end", "reach.meet", "reach.open"]


@each_row(
    "body",
    [
        {"kind": "program"},
        {"kind": "program", "argv": ["a\0b"]},
        {"kind": "program", "argv": [""]},
        {"kind": "program", "argv": ["x" * 60_000, "y" * 60_000]},
        {"kind": "program", "argv": ["true"], "rank": -1},
        {"kind": "program", "argv": ["true"], "terminal": {"rows": 0}},
        {"kind": "program", "argv": ["true"], "authorized_key": "ssh-ed25519 AAAA"},
        {"kind": "ports", "argv": ["true"]},
        {"kind": "ssh"},
        {"kind": "ssh", "authorized_key": "a\nb"},
        {"kind": "root"},
        {"kind": "ports", "extra": 1},
    ],
)
def test_what_does_not_fit_together_is_refused(service: ApiFixture, body: dict[str, Any]) -> None:
    job_id = f"job_{'0' * 32}"
    assert service.client.post(f"/v1/jobs/{job_id}/reaches", json=body).status_code in {413, 422}


def test_another_users_job_is_not_found_and_one_that_may_be_read_is_forbidden(service: ApiFixture) -> None:
    service.act_as("bob")
    private, shared = (service.submit(visibility=what)["id"] for what in ("private", "team"))
    service.act_as("olga", Role.OPERATOR)
    scoped = service.client.post("/v1/tokens", json={"scopes": ["account", "jobs:read"]})
    assert scoped.status_code == 201
    answers = [service.client.post(f"/v1/jobs/{job}/reaches", json=PROGRAM) for job in (private, shared)]
    assert [answer.status_code for answer in answers] == [403, 403], "a token that was made without its name"
    with_exec = service.client.post("/v1/tokens", json={"scopes": ["account", "jobs:read", "jobs:exec"]})
    assert with_exec.status_code == 403, "it has no more than the one that makes it"
    service.act_as("admin")
    made = service.client.post("/v1/tokens", json={"user": "olga", "scopes": ["account", "jobs:read", "jobs:exec"]})
    service.client.headers["Authorization"] = f"Bearer {made.json()['token']}"
    answers = [service.client.post(f"/v1/jobs/{job}/reaches", json=PROGRAM) for job in (private, shared)]
    assert [answer.status_code for answer in answers] == [404, 403]
    assert service.client.post(f"/v1/reaches/rch_{'0' * 32}/meetings").status_code == 404
    assert service.client.post("/v1/reaches/nothing/meetings").status_code == 404


@pytest.mark.parametrize(("visibility", "status"), [("private", 404), ("team", 403)])
def test_a_member_gets_at_no_reach_into_the_job_of_another(service: ApiFixture, visibility: str, status: int) -> None:
    tokens = {user: _reaching_token(service, user) for user in ("bob", "mallory")}

    def act_as(user: str) -> None:
        service.client.headers["Authorization"] = f"Bearer {tokens[user]}"

    act_as("bob")
    job_id = service.submit(visibility=visibility)["id"]
    service.start(job_id)
    reaches = f"/v1/jobs/{job_id}/reaches"
    path = f"/v1/reaches/{service.client.post(reaches, json=PROGRAM).json()['id']}"
    act_as("mallory")
    assert service.client.post(reaches, json=PROGRAM).status_code == status
    assert service.client.post(f"{path}/meetings").status_code == service.client.delete(path).status_code == 404
    listed = service.client.get(reaches)
    assert (listed.status_code, listed.json().get("data", [])) == (404 if visibility == "private" else 200, [])
    act_as("bob")
    assert service.client.post(f"{path}/meetings").json()["meeting"] == 2, "nobody has ended or joined it"


def test_a_setting_lets_operators_reach_into_the_jobs_of_others(service: ApiFixture) -> None:
    service.act_as("bob")
    job_id = service.submit(visibility="private")["id"]
    service.start(job_id)
    service.act_as("admin")
    path = f"/v1/jobs/{job_id}/reaches"
    assert service.client.post(path, json=PROGRAM).status_code == 403
    state = service.app.state
    lenient = service.settings.model_copy(update={"exec_by_operators": True})
    state.services = replace(state.services, settings=lenient)
    opened = service.client.post(path, json=PROGRAM)
    assert opened.status_code == 201
    newest = service.get("/v1/audit")["data"][0]
    assert (newest["action"], newest["who"]) == ("reach.open", "admin")
    assert newest["object"] == f"{opened.json()['id']} of {job_id}: program nvidia-smi"


@pytest.mark.parametrize("asked", [False, True])
def test_a_browser_reaches_into_jobs_only_if_that_is_asked_for(service: ApiFixture, asked: bool) -> None:
    token = service.client.headers.pop("Authorization").removeprefix("Bearer ")
    body = {"token": token, "exec": True} if asked else {"token": token}
    opened = service.client.post("/v1/session", json=body)
    assert opened.status_code == 200
    assert ("jobs:exec" in opened.json()["scopes"]) is asked
    service.client.headers["X-CSRF-Token"] = opened.json()["csrf"]
    assert ("jobs:exec" in service.get("/v1/me")["scopes"]) is asked


def _reaching_token(service: ApiFixture, user: str) -> str:
    """Adds a member. Returns a token of theirs that may reach into jobs."""
    service.act_as(user)
    service.act_as("admin")
    body = {"user": user, "scopes": ["account", "jobs:read", "jobs:write", "jobs:exec"]}
    return service.client.post("/v1/tokens", json=body).json()["token"]
