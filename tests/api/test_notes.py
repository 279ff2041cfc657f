"""Notes, archived jobs, stars and labels by the API: who may change and see them, and what finds them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from httpx2 import Response
import pytest

from store.jobs import table as job_table
from tests.api.service import ApiFixture, both_databases
from tests.rows import each_row
from torchyard.contract.jobs.notes import MOST_SEARCHED
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role


def patch(service: ApiFixture, job_id: str, **change: Any) -> Response:
    return service.client.patch(f"/v1/jobs/{job_id}", json=change)


def act(service: ApiFixture, action: str, **body: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/jobs/actions", json={"action": action, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(service: ApiFixture, **spec: Any) -> str:
    """Returns a job that has ended."""
    job_id = service.submit(**spec)["id"]
    service.end(service.start(job_id), reason=EndReason.COMPLETED)
    return job_id


def names(service: ApiFixture, **where: Any) -> list[str]:
    return [job["name"] for job in service.get("/v1/jobs", **where)["data"]]


@both_databases
def test_notes_are_in_the_job_and_found_by_a_search(service: ApiFixture) -> None:
    job_id = service.submit(name="one")["id"]
    service.submit(name="two")
    before = service.get(f"/v1/jobs/{job_id}")
    assert (before["notes"], before["has_notes"]) == ("", False)
    job = patch(service, job_id, notes="# Straße\n\n100% of `a_b`").json()
    assert (job["notes"], job["has_notes"], job["version"]) == (
        "# Straße\n\n100% of `a_b`",
        True,
        before["version"] + 1,
    )
    assert job == service.get(f"/v1/jobs/{job_id}")
    assert job["spec"] == before["spec"]
    listed = {row["name"]: row for row in service.get("/v1/jobs")["data"]}
    assert {name: row["has_notes"] for name, row in listed.items()} == {"one": True, "two": False}
    assert "notes" not in listed["one"]
    assert [names(service, q=q) for q in ("STRASSE", "0% of `A", "axb", "one")] == [["one"], ["one"], [], ["one"]]
    patch(service, job_id, name="uno", labels={"a": "b"})
    assert [names(service, q=q) for q in ("strasse", "uno")] == [["uno"], ["uno"]]
    gone = patch(service, job_id, notes="").json()
    assert (gone["notes"], gone["has_notes"], names(service, q="strasse")) == ("", False, [])


def test_a_search_reads_the_beginning_of_notes(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    patch(service, job_id, notes="seen" + " " * MOST_SEARCHED + "unseen")
    assert (names(service, q="seen"), names(service, q="unseen")) == (["digits"], [])


def test_notes_that_somebody_else_has_changed_are_not_overwritten(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    assert patch(service, job_id, notes="mine", notes_before="").status_code == 200
    refused = patch(service, job_id, notes="theirs", notes_before="", name="other")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "have changed since you read them" in refused.json()["detail"]
    job = service.get(f"/v1/jobs/{job_id}")
    assert (job["notes"], job["name"]) == ("mine", "digits")
    assert patch(service, job_id, notes="theirs", notes_before="mine").json()["notes"] == "theirs"
    assert patch(service, job_id, notes="theirs", notes_before="mine").status_code == 200  # as a repeated request


@both_databases
def test_of_writers_that_read_the_same_notes_one_succeeds(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    with ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(patch, service, job_id, notes=f"by {n}", notes_before="") for n in range(4)]
    answers = [each.result() for each in writing]
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    (kept,) = [answer.json()["notes"] for answer in answers if answer.status_code == 200]
    assert service.get(f"/v1/jobs/{job_id}")["notes"] == kept


def test_notes_that_are_not_valid_change_nothing(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    answer = patch(service, job_id, notes="a\x1b[2J", name="other")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "notes")
    assert "U+001B (escape)" in answer.json()["errors"][0]["message"]
    assert patch(service, job_id, notes="x" * 1_000_000).status_code == 413
    binary = b'{"notes": "\xff\xfe"}'
    assert service.client.patch(f"/v1/jobs/{job_id}", content=binary).json()["code"] == "invalid_request"
    assert service.get(f"/v1/jobs/{job_id}")["name"] == "digits"


def test_only_who_may_read_the_job_sees_and_only_its_owner_changes_what_is_noted(service: ApiFixture) -> None:
    service.act_as("alice")
    private, shared = service.submit(name="private")["id"], service.submit(name="shared", visibility="team")["id"]
    for job_id in (private, shared):
        assert patch(service, job_id, notes="the secret plan").status_code == 200
    for name, role in (("bob", Role.MEMBER), ("olga", Role.OPERATOR)):
        service.act_as(name, role)
        for change in ({"notes": "x"}, {"notes": "x", "notes_before": "the secret plan"}, {"archived": True}):
            assert patch(service, private, **change).status_code == 404
            assert patch(service, shared, **change).status_code == 403
        assert service.client.get(f"/v1/jobs/{private}").status_code == 404
        assert service.get(f"/v1/jobs/{shared}")["notes"] == "the secret plan"
        assert names(service, q="secret") == ["shared"]
        for action in ("archive", "unarchive", "label"):
            labels = {"labels": {"a": "b"}} if action == "label" else {}
            refused = act(service, action, ids=[private, shared], **labels)["refused"]
            assert [item["code"] for item in refused] == ["not_found", "forbidden"]
            assert act(service, action, filter={}, **labels)["matched"] == 0
    rows = {row["name"]: row for row in service.get("/v1/jobs")["data"]}  # an operator's list
    assert (rows["private"]["has_notes"], rows["shared"]["has_notes"]) == (False, True)


@both_databases
def test_an_archived_job_is_in_the_lists_that_ask_for_it(service: ApiFixture) -> None:
    old, new = ended(service, name="old"), service.submit(name="new")["id"]
    refused = patch(service, new, archived=True)
    assert (refused.status_code, "only finished jobs can be archived" in refused.text) == (409, True)
    job = patch(service, old, archived=True).json()
    assert (job["archived"], job["version"]) == (True, patch(service, old, archived=True).json()["version"])
    assert (names(service), names(service, archived="false")) == (["new"], ["new"])
    assert (names(service, archived="true"), names(service, archived="true", q="new")) == (["old"], [])
    for where, counts in (({}, {"queued": 1}), ({"archived": "true"}, {"succeeded": 1}), ({"q": "old"}, {})):
        found = service.get("/v1/jobs", counts="true", **where)
        assert (found["counts"], found["total"]) == (counts, sum(counts.values()))
    for sort in ("created", "-name", "finished"):
        assert (names(service, sort=sort), names(service, sort=sort, archived="true")) == (["new"], ["old"])
    assert service.get(f"/v1/jobs/{old}")["archived"]
    assert not patch(service, old, archived=False).json()["archived"]
    assert names(service) == ["new", "old"]
    assert service.get("/v1/jobs", counts="true")["counts"] == {"queued": 1, "succeeded": 1}


@both_databases
def test_actions_archive_and_label_what_a_filter_finds(service: ApiFixture) -> None:
    old, kept = ended(service, name="old", labels={"run": "1"}), ended(service, name="kept")
    service.submit(name="waits", labels={"run": "1"})
    assert act(service, "archive", filter={"label": ["run:1"]}, dry_run=True)["matched"] == 1
    assert act(service, "archive", filter={"label": ["run:1"]})["done"] == 1
    assert names(service) == ["waits", "kept"]
    assert act(service, "archive", filter={"name": "old"})["matched"] == 0
    assert act(service, "delete", filter={"name": "old"})["matched"] == 0  # an archived job is not found unasked
    assert act(service, "unarchive", filter={"label": ["run:1"]})["done"] == 1
    labels = {"team": "roads", "run": None}
    assert act(service, "label", filter={}, labels=labels)["done"] == 3
    assert act(service, "label", filter={}, labels=labels)["matched"] == 0
    assert [row["labels"] for row in service.get("/v1/jobs")["data"]] == 3 * [{"team": "roads"}]
    assert service.get(f"/v1/jobs/{old}")["spec"]["labels"] == {"team": "roads"}
    assert names(service, q="roads", label="team:roads") == ["waits", "kept", "old"]
    done = [(entry["action"], entry["object"]) for entry in service.get("/v1/audit")["data"]]
    assert {("job.archive", old), ("job.unarchive", old), ("job.change", kept)} <= set(done)


def test_labels_are_changed_one_by_one_and_never_too_many(service: ApiFixture) -> None:
    job_id = service.submit(labels={f"k{n}": "" for n in range(31)} | {"a": "1"})["id"]
    assert act(service, "label", ids=[job_id], labels={"a": "2"})["done"] == 1
    (refused,) = act(service, "label", ids=[job_id], labels={"b": "1"})["refused"]
    assert (refused["code"], "at most 32" in refused["message"]) == ("conflict", True)
    assert act(service, "label", ids=[job_id], labels={"b": "1", "k0": None})["done"] == 1
    labels = service.get(f"/v1/jobs/{job_id}")["labels"]
    assert (labels["a"], labels["b"], "k0" in labels, len(labels)) == ("2", "1", False, 32)


@each_row(
    "body",
    [
        {"action": "label"},
        {"action": "label", "labels": {}},
        {"action": "label", "labels": None},
        {"action": "label", "labels": {"no key!": "1"}},
        {"action": "archive", "labels": {"a": "1"}},
    ],
)
def test_labels_are_sent_with_the_action_label(service: ApiFixture, body: dict[str, Any]) -> None:
    assert service.client.post("/v1/jobs/actions", json={"filter": {}, **body}).status_code == 422


@pytest.mark.parametrize("state", ["queued", "running", "paused", "succeeded"])
def test_labels_and_notes_change_in_every_state(service: ApiFixture, state: str) -> None:
    job_id = service.submit()["id"]
    if state == "paused":
        service.client.post(f"/v1/jobs/{job_id}/pause")
    elif state != "queued":
        claim = service.start(job_id)
        if state == "succeeded":
            service.end(claim, reason=EndReason.COMPLETED)
    job = patch(service, job_id, labels={"seen": "yes"}, notes="seen").json()
    assert (job["state"], job["labels"], job["notes"]) == (state, {"seen": "yes"}, "seen")
    assert names(service, label="seen:yes", q="seen") == ["digits"]


@both_databases
def test_a_star_is_its_users_own(service: ApiFixture) -> None:
    service.act_as("alice")
    private, shared = service.submit(name="private")["id"], service.submit(name="shared", visibility="team")["id"]
    for _ in range(2):
        assert service.client.put(f"/v1/jobs/{private}/star").status_code == 204
    service.act_as("bob")
    assert service.client.put(f"/v1/jobs/{private}/star").status_code == 404
    assert service.client.put(f"/v1/jobs/{shared}/star").status_code == 204
    version = service.get(f"/v1/jobs/{shared}")["version"]
    assert names(service, starred="true") == ["shared"]
    service.act_as("alice")
    starred = {row["name"]: row["starred"] for row in service.get("/v1/jobs")["data"]}
    assert starred == {"private": True, "shared": False}
    assert (names(service, starred="true"), names(service, starred="false")) == (["private"], ["shared"])
    assert service.get("/v1/jobs", starred="true", counts="true")["counts"] == {"queued": 1}
    job = service.get(f"/v1/jobs/{private}")
    assert (job["starred"], service.get(f"/v1/jobs/{shared}")["version"]) == (True, version)
    for _ in range(2):
        assert service.client.delete(f"/v1/jobs/{private}/star").status_code == 204
    assert names(service, starred="true") == []


def test_actions_star_what_the_caller_may_read(service: ApiFixture) -> None:
    service.act_as("alice")
    private, shared = service.submit(name="private")["id"], service.submit(name="shared", visibility="team")["id"]
    for name, role in (("bob", Role.MEMBER), ("olga", Role.OPERATOR)):
        service.act_as(name, role)
        answer = act(service, "star", ids=[private, shared])
        assert (answer["done"], [item["code"] for item in answer["refused"]]) == (1, ["not_found"])
        assert act(service, "star", filter={})["matched"] == 0
        assert act(service, "unstar", filter={"starred": True})["done"] == 1
        assert act(service, "star", filter={})["done"] == 1
        assert names(service, starred="true") == ["shared"]
    service.act_as("vera", Role.VIEWER)
    assert service.client.put(f"/v1/jobs/{shared}/star").status_code == 403


@both_databases
def test_a_list_is_grouped_by_a_label(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("a", "b", "b"):
        service.submit(labels={"team": value})
    service.submit()
    ended(service, labels={"team": "a"})
    patch(service, ended(service, labels={"team": "c"}), archived=True)

    def groups(**where: Any) -> list[tuple[str | None, dict[str, int], int]]:
        found = service.get("/v1/jobs", group_by="label:team", limit=1, **where)
        assert (len(found["data"]), found["groups_complete"]) == (1, True)
        return [(group["value"], group["counts"], group["total"]) for group in found["groups"]]

    assert groups() == [("a", {"queued": 1, "succeeded": 1}, 2), ("b", {"queued": 2}, 2), (None, {"queued": 1}, 1)]
    assert groups(state="succeeded") == [("a", {"succeeded": 1}, 1)]
    assert groups(archived="true") == [("c", {"succeeded": 1}, 1)]
    assert service.get("/v1/jobs")["groups"] is None
    monkeypatch.setattr(job_table, "_ARRANGED", 2)
    found = service.get("/v1/jobs", group_by="label:team")
    assert (sum(group["total"] for group in found["groups"]), found["groups_complete"]) == (2, False)
    for wrong in ("team", "label:", "label:no key"):
        assert service.client.get("/v1/jobs", params={"group_by": wrong}).status_code == 422


def test_groups_tell_nothing_of_jobs_that_the_caller_may_not_read(service: ApiFixture) -> None:
    service.act_as("alice")
    service.submit(labels={"team": "secret"})
    for name, role in (("bob", Role.MEMBER), ("olga", Role.OPERATOR)):
        service.act_as(name, role)
        assert service.get("/v1/jobs", group_by="label:team")["groups"] == []
