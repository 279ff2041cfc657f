"""Tests of actions on many jobs, named by their ids or found by a filter."""

from typing import Any

import pytest

from api.routes.team import cancelling_jobs
from store.jobs import actions, listing
from store.team.callers import SERVICE
from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from tests.store.fixture import recorded_statements
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role


def act(service: ApiFixture, action: str, **body: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/jobs/actions", json={"action": action, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def states(service: ApiFixture) -> dict[str, str]:
    return {job["name"]: job["state"] for job in service.get("/v1/jobs")["data"]}


def summary(answer: dict[str, Any]) -> tuple[int, int, list[tuple[str, str]], bool]:
    refused = [(item["job_id"], item["code"]) for item in answer["refused"]]
    return answer["matched"], answer["done"], refused, answer["more"]


@both_databases
def test_a_filter_finds_the_jobs_on_which_the_action_does_something(service: ApiFixture) -> None:
    jobs = {name: service.submit(name=name, labels={"n": name})["id"] for name in ("ended", "runs", "waits", "other")}
    service.end(service.start(jobs["ended"]), reason=EndReason.COMPLETED)
    claim = service.start(jobs["runs"], device="cpu-1")
    assert summary(act(service, "pause", filter={"q": "s"}, dry_run=True)) == (2, 0, [], False)
    assert set(states(service).values()) == {"succeeded", "running", "queued"}
    assert summary(act(service, "pause", filter={"q": "s"})) == (2, 2, [], False)
    assert summary(act(service, "pause", filter={"q": "s"})) == (0, 0, [], False)
    assert states(service) == {"ended": "succeeded", "runs": "running", "waits": "paused", "other": "queued"}
    assert summary(act(service, "resume", filter={"state": ["paused"], "label": ["n:waits"]})) == (1, 1, [], False)
    assert states(service)["waits"] == "queued"
    assert summary(act(service, "cancel", filter={"trainer": "image-classification", "owner": "admin"})) == (
        3,
        3,
        [],
        False,
    )
    assert summary(act(service, "cancel", filter={})) == (0, 0, [], False)  # the running one is stopping already
    service.end(claim, reason=EndReason.CANCELLED)
    assert states(service) == {"ended": "succeeded", "runs": "cancelled", "waits": "cancelled", "other": "cancelled"}
    assert summary(act(service, "delete", filter={"name": "runs"})) == (1, 1, [], False)
    assert summary(act(service, "delete", filter={})) == (3, 3, [], False)
    assert states(service) == {}


def test_an_operator_ends_private_jobs_of_others_by_force_and_sees_nothing_of_them(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.start(job_id)
    for role, forced, done in ((Role.MEMBER, True, 0), (Role.OPERATOR, False, 0), (Role.OPERATOR, True, 1)):
        service.act_as(f"{role}{forced}", role)
        assert act(service, "cancel", ids=[job_id], now=forced)["done"] == done, (role, forced)
        answer = service.client.post(f"/v1/jobs/{job_id}/cancel", params={"now": forced})
        assert answer.status_code == (403 if done else 404), answer.text
        assert ("to kill it, use `POST /v1/jobs/actions` with its id and `now`" in answer.text) == bool(done)


def test_a_cancel_that_may_not_show_the_job_changes_nothing(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.start(job_id)
    service.act_as("operator", Role.OPERATOR)
    assert service.client.post(f"/v1/jobs/{job_id}/cancel?now=true").status_code == 403
    service.act_as("admin")
    assert service.get(f"/v1/jobs/{job_id}")["status_reason"]["code"] == "running"
    assert service.get("/v1/audit", action="job.cancel_now")["data"] == []


def test_a_forced_cancel_finds_jobs_that_stop_already(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    assert summary(act(service, "cancel", filter={})) == (1, 1, [], False)
    assert summary(act(service, "cancel", filter={}, now=True, dry_run=True)) == (1, 0, [], False)
    assert summary(act(service, "cancel", filter={}, now=True)) == (1, 1, [], False)
    assert summary(act(service, "cancel", filter={}, now=True)) == (0, 0, [], False)
    assert summary(act(service, "cancel", ids=[job_id], now=True)) == (1, 1, [], False)
    assert service.get(f"/v1/jobs/{job_id}")["status_reason"]["message"].startswith("forced cancel requested")
    assert [entry["object"] for entry in service.get("/v1/audit", action="job.cancel_now")["data"]] == [job_id, job_id]
    service.end(claim, reason=EndReason.CANCELLED)
    assert states(service) == {"digits": "cancelled"}


def test_only_a_cancel_is_forced(service: ApiFixture) -> None:
    answer = service.client.post("/v1/jobs/actions", json={"action": "pause", "filter": {}, "now": True})
    assert answer.status_code == 422
    assert "only for `cancel`" in answer.text


def test_what_is_refused_leaves_the_others_as_they_are(service: ApiFixture) -> None:
    ended, waits = service.submit(name="ended")["id"], service.submit(name="waits")["id"]
    service.end(service.start(ended), reason=EndReason.COMPLETED)
    missing = "job_" + "0" * 32
    answer = act(service, "cancel", ids=[ended, waits, waits, missing, "../x", ""])
    refused = [(missing, "not_found"), ("../x", "not_found"), ("", "not_found"), (ended, "conflict")]
    assert summary(answer) == (2, 1, refused, False)
    assert "succeeded" in answer["refused"][-1]["message"]
    assert states(service) == {"ended": "succeeded", "waits": "cancelled"}
    assert summary(act(service, "cancel", ids=[waits])) == (1, 1, [], False)  # as a second cancel of one job
    assert summary(act(service, "cancel", ids=[])) == (0, 0, [], False)
    assert [entry["object"] for entry in service.get("/v1/audit", action="job.cancel")["data"]] == [waits, waits]


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OPERATOR])
def test_only_jobs_that_the_caller_may_change_are_changed(service: ApiFixture, role: Role) -> None:
    service.act_as("alice")
    private, shared = service.submit(name="private")["id"], service.submit(name="shared", visibility="team")["id"]
    service.act_as("bob", role)
    own = service.submit(name="own")["id"]
    for dry_run in (True, False):
        answer = act(service, "pause", ids=[private, shared, own], dry_run=dry_run)
        assert summary(answer) == (1, 1 - dry_run, [(private, "not_found"), (shared, "forbidden")], False)
    assert summary(act(service, "cancel", filter={"owner": "alice"})) == (0, 0, [], False)
    assert summary(act(service, "cancel", filter={})) == (1, 1, [], False)
    service.act_as("alice")
    assert states(service) == {"private": "queued", "shared": "queued"}
    service.act_as("admin")
    assert summary(act(service, "cancel", filter={"owner": "alice"})) == (2, 2, [], False)


def test_a_viewer_may_not_act(service: ApiFixture) -> None:
    service.act_as("vera", Role.VIEWER)
    answer = service.client.post("/v1/jobs/actions", json={"action": "cancel", "filter": {}})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_job_that_ends_meanwhile_is_refused(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    first = service.submit(name="first")["id"]
    service.submit(name="second")
    find = listing.choose_ids

    def find_and_end(*args: Any, **options: Any) -> Any:
        found = find(*args, **options)
        service.end(service.start(first), reason=EndReason.COMPLETED)
        return found

    monkeypatch.setattr(listing, "choose_ids", find_and_end)
    assert summary(act(service, "cancel", filter={})) == (2, 1, [(first, "conflict")], False)
    assert states(service) == {"first": "succeeded", "second": "cancelled"}


def test_an_action_takes_a_bounded_number_of_jobs_and_says_that_there_are_more(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MOST_ACTIONS", 2)
    for number in range(5):
        service.submit(name=f"n{number}")
    assert [summary(act(service, "cancel", filter={})) for _ in range(3)] == [
        (2, 2, [], True),
        (2, 2, [], True),
        (1, 1, [], False),
    ]


def test_at_most_fifty_refusals_are_listed(service: ApiFixture) -> None:
    sent = [f"job_{number:032x}" for number in range(200)]
    answer = act(service, "delete", ids=sent)
    assert (answer["matched"], answer["done"], len(answer["refused"])) == (0, 0, 50)


@each_row(
    ("body", "field"),
    [
        ({"action": "cancel"}, ""),
        ({"action": "cancel", "ids": [], "filter": {}}, ""),
        ({"action": "cancel", "ids": None}, "ids"),
        ({"action": "cancel", "filter": None}, "filter"),
        ({"action": "retry", "ids": []}, "action"),
        ({"ids": []}, "action"),
        ({"action": "cancel", "ids": ["x"] * 1001}, "ids"),
        ({"action": "cancel", "ids": "job_1"}, "ids"),
        ({"action": "cancel", "ids": [1]}, "ids.0"),
        ({"action": "cancel", "ids": ["x" * 101]}, "ids.0"),
        ({"action": "cancel", "filter": {"states": ["queued"]}}, "filter.states"),
        ({"action": "cancel", "filter": {"state": ["waiting"]}}, "filter.state.0"),
        ({"action": "cancel", "filter": {"state": "queued"}}, "filter.state"),
        ({"action": "cancel", "filter": {"q": "x" * 201}}, "filter.q"),
        ({"action": "cancel", "filter": {"q": "\0"}}, "filter.q"),
        ({"action": "cancel", "filter": {"q": None}}, "filter.q"),
        ({"action": "cancel", "filter": {"label": ["team"]}}, "filter.label.0"),
        ({"action": "cancel", "ids": [], "dry_run": "yes"}, "dry_run"),
        ({"action": "cancel", "ids": [], "force": True}, "force"),
        ([], ""),
    ],
)
def test_a_request_that_is_not_valid_names_the_field(service: ApiFixture, body: object, field: str) -> None:
    answer = service.client.post("/v1/jobs/actions", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_of_many_ids_a_few_statements_say_which_may_be_changed(service: ApiFixture) -> None:
    ids = [service.submit(name=f"j{number}")["id"] for number in range(6)]
    service.act_as("bob")
    mine = service.submit(visibility="team")["id"]
    service.act_as("eve")
    own = service.submit()["id"]
    asked = [*ids, "job_0", mine, own, own]
    with recorded_statements(service.database) as found:
        answer = act(service, "archive", ids=asked, dry_run=True)
    assert len([each for each in found if "FROM jobs" in each]) <= 3
    codes = {item["job_id"]: item["code"] for item in answer["refused"]}
    assert codes == {**dict.fromkeys([*ids, "job_0"], "not_found"), mine: "forbidden"}
    assert answer["matched"] == 1


def test_others_have_their_turn_while_many_jobs_are_changed(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_PART_S", 0.0)
    ids = [service.submit(name=f"job-{number}")["id"] for number in range(3)]
    store = service.app.state.services.store
    parts = actions.act(store, "cancel", ids, caller=SERVICE)
    next(parts)
    assert sorted(states(service).values()) == ["cancelled", "queued", "queued"], "the first part changed one"
    with pytest.raises(StopIteration) as ended:
        while True:
            next(parts)
    assert ended.value.value.done == 3


def test_the_jobs_of_a_disabled_user_are_cancelled_one_after_another(service: ApiFixture) -> None:
    for _ in range(3):
        service.submit()
    cancelling = cancelling_jobs(service.app.state.services, "admin", SERVICE)
    next(cancelling)
    states_now = [job["state"] for job in service.get("/v1/jobs")["data"]]
    assert sorted(states_now) == ["cancelled", "queued", "queued"]
    assert len([*cancelling]) == 2
    assert {job["state"] for job in service.get("/v1/jobs")["data"]} == {"cancelled"}
