"""Models over HTTP: who may do what, what is answered, and the files."""

from typing import Any

import pytest

from tests.api.service import ApiFixture, sha256
from tests.api.test_problems import assert_problem
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

STATE, WEIGHTS = b"state" * 100, b"weights"
READS = (
    "/v1/models/bob/digits",
    "/v1/models/bob/digits/versions",
    "/v1/models/bob/digits/versions/1",
    "/v1/models/bob/digits/versions/latest",
    "/v1/models/bob/digits/versions/1/download",
    "/v1/models/bob/digits/versions/latest/download?file=model.safetensors",
)


@pytest.fixture
def job(service: ApiFixture) -> str:
    """A job of bob's that has ended, with two checkpoints, of which the first is the best."""
    service.act_as("bob")
    job_id = service.submit(name="crack-unet")["id"]
    claim = service.start(job_id)
    files = {"state.pt": STATE, "model.safetensors": WEIGHTS, "overlays/a.png": b"png"}
    for step, loss in ((1, 0.25), (2, float("nan"))):
        new = service.new_checkpoint(step=step, epoch=step, files=files | {"step": bytes(step)}, val_loss=loss)
        service.record(claim, checkpoints=[new])
    service.end(claim, reason=EndReason.COMPLETED)
    return job_id


@pytest.fixture
def version(service: ApiFixture, job: str) -> str:
    """The path of a version of the best checkpoint."""
    made = added(service, job)
    return f"/v1/models/{made['owner']}/{made['name']}/versions/{made['version']}"


def added(service: ApiFixture, job: str, ref: str = "best", name: str = "digits", **more: Any) -> dict[str, Any]:
    answer = service.client.post("/v1/models", json={"name": name, "from": f"{job}/{ref}", **more})
    assert answer.status_code == 201, answer.text
    assert (
        answer.headers["location"] == f"/v1/models/{answer.json()['owner']}/{name}/versions/{answer.json()['version']}"
    )
    assert service.get(answer.headers["location"]) == answer.json()
    return answer.json()


@quick_on_sqlite
def test_a_version_says_what_it_is_and_outlives_its_job(service: ApiFixture, job: str) -> None:
    best = service.get(f"/v1/jobs/{job}/checkpoints/best")
    made = added(service, job)
    assert (made["owner"], made["name"], made["version"], made["trainer"]) == (
        "bob",
        "digits",
        1,
        "image-classification",
    )
    assert (made["job_id"], made["checkpoint_id"], made["step"], made["epoch"]) == (job, best["id"], 1, 1)
    assert {key: made[key] for key in ("files", "size", "sha256", "metrics")} == {
        key: best[key] for key in ("files", "size", "sha256", "metrics")
    }
    assert made["stored_bytes"] == len(STATE) + len(WEIGHTS) + len(b"png") + 1
    assert added(service, job, "latest")["metrics"] == {"val/loss": "NaN"}
    assert service.client.delete(f"/v1/jobs/{job}").status_code == 204
    assert service.get("/v1/models/bob/digits/versions/1") == made
    assert service.client.get("/v1/models/bob/digits/versions/1/download").content == STATE


def test_the_same_checkpoint_again_answers_the_version_that_it_made(service: ApiFixture, job: str) -> None:
    made = added(service, job)
    again = service.client.post("/v1/models", json={"name": "digits", "from": f"{job}/best"})
    assert (again.status_code, again.json(), "location" in again.headers) == (200, made, False)
    assert [item["version"] for item in service.get("/v1/models/bob/digits/versions")["data"]] == [1]


@each_row(
    ("body", "field"),
    [
        ({"name": "a"}, "from"),
        ({"name": "a/b", "from": f"job_{'0' * 32}/best"}, "name"),
        ({"name": "", "from": f"job_{'0' * 32}/best"}, "name"),
        ({"name": "a@3", "from": f"job_{'0' * 32}/best"}, "name"),
        ({"name": "a", "from": "digits/best"}, "from"),
        ({"name": "a", "from": f"job_{'0' * 32}/../best"}, "from"),
        ({"name": "a", "from": f"job_{'0' * 32}/best", "visibility": "all"}, "visibility"),
        ({"name": "a", "source": f"job_{'0' * 32}/best", "from": f"job_{'0' * 32}/best"}, "source"),
    ],
)
def test_a_wrong_request_names_its_field(service: ApiFixture, body: dict[str, str], field: str) -> None:
    answer = service.client.post("/v1/models", json=body)
    assert_problem(answer, 422, "invalid_request")
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_what_is_not_there_cannot_be_added(service: ApiFixture, job: str) -> None:
    for source in (f"job_{'0' * 32}/best", f"{job}/epoch-9", f"{job}/ckpt_{'0' * 32}", f"{job}/none"):
        assert_problem(service.client.post("/v1/models", json={"name": "a", "from": source}), 404, "not_found")
    service.act_as("alice")
    answer = service.client.post("/v1/models", json={"name": "a", "from": f"{job}/best"})
    assert_problem(answer, 404, "not_found")
    assert service.get("/v1/models")["data"] == []


def test_a_version_beyond_the_quota_is_refused(service: ApiFixture, job: str) -> None:
    service.act_as("admin")
    service.client.put("/v1/quotas/users/bob", json={"stored_bytes": 10})
    service.act_as("bob")
    answer = service.client.post("/v1/models", json={"name": "digits", "from": f"{job}/best"})
    assert_problem(answer, 403, "quota_exceeded")
    assert service.client.get("/v1/models/bob/digits").status_code == 404


@pytest.mark.parametrize("visibility", ["private", "team"])
def test_whose_models_each_role_may_read_and_change(service: ApiFixture, job: str, visibility: str) -> None:
    added(service, job, visibility=visibility)
    for role in Role:
        service.act_as("alice" if role is Role.ADMIN else role, role)
        readable = visibility == "team" or role is Role.ADMIN
        for path in READS:
            answer = service.client.get(path)
            assert answer.status_code == (200 if readable else 404), (role, path)
        assert [item["name"] for item in service.get("/v1/models")["data"]] == (["digits"] if readable else []), role
        refused = 403 if readable or role is Role.VIEWER else 404
        for method, path, body, status in (
            ("PATCH", "/v1/models/bob/digits", {"visibility": visibility}, 200),
            ("DELETE", "/v1/models/bob/digits/versions/1", None, 204),
            ("DELETE", "/v1/models/bob/digits", None, 404),
        ):
            answer = service.client.request(method, path, json=body)
            assert answer.status_code == (status if role is Role.ADMIN else refused), (role, path)


def test_the_job_is_told_to_those_who_may_read_it(service: ApiFixture, job: str) -> None:
    added(service, job, visibility="team")
    service.act_as("alice")
    shown = service.client.get("/v1/models/bob/digits/versions/1")
    assert (shown.json()["job_id"], shown.json()["checkpoint_id"]) == (None, None)
    for path in ("/v1/models", "/v1/models/bob/digits", "/v1/models/bob/digits/versions"):
        assert job not in service.client.get(path).text
    service.act_as("bob")
    service.client.patch(f"/v1/jobs/{job}", json={"visibility": "team"})
    service.act_as("alice")
    assert service.get("/v1/models/bob/digits/versions/1")["job_id"] == job


def test_a_model_has_the_visibility_that_is_asked_and_then_the_one_it_was_given(service: ApiFixture, job: str) -> None:
    added(service, job)
    assert service.get("/v1/models/bob/digits")["visibility"] == "private"
    changed = service.client.patch("/v1/models/bob/digits", json={"visibility": "team"})
    assert (changed.status_code, changed.json()["visibility"]) == (200, "team")
    refused = service.client.post(
        "/v1/models", json={"name": "digits", "from": f"{job}/latest", "visibility": "private"}
    )
    assert_problem(refused, 409, "conflict")
    added(service, job, "latest")
    assert service.get("/v1/models/bob/digits")["visibility"] == "team"


def test_lists_come_in_pages_and_are_filtered(service: ApiFixture, job: str) -> None:
    for name in ("b", "a.2", "c"):
        added(service, job, name=name)
        added(service, job, "latest", name=name)
    whole = service.get("/v1/models")["data"]
    assert [(item["name"], item["versions"], item["newest"]["version"]) for item in whole] == [
        ("a.2", 2, 2),
        ("b", 2, 2),
        ("c", 2, 2),
    ]
    first = service.get("/v1/models", limit=1)
    assert (first["data"], first["next"]) == (whole[:1], "bob/a.2")
    assert service.get("/v1/models", after=first["next"])["data"] == whole[1:]
    assert service.get("/v1/models", name="b")["data"] == service.get("/v1/models", name="b", owner="bob")["data"]
    assert service.get("/v1/models", owner="alice")["data"] == []
    assert service.get("/v1/models", job=job)["data"] == whole
    assert service.get("/v1/models", job=service.submit()["id"])["data"] == []
    versions = service.get("/v1/models/bob/b/versions", limit=1)
    assert ([item["version"] for item in versions["data"]], versions["next"]) == ([2], "2")
    assert [item["version"] for item in service.get("/v1/models/bob/b/versions", after="2")["data"]] == [1]
    for path in ("/v1/models?after=b", "/v1/models?after=/", "/v1/models/bob/b/versions?after=x"):
        assert_problem(service.client.get(path), 422, "invalid_cursor")


def test_a_file_is_sent_as_those_of_checkpoints_are(service: ApiFixture, job: str) -> None:
    added(service, job)
    path = "/v1/models/bob/digits/versions/1/download"
    whole = service.client.get(path)
    assert (whole.content, whole.headers["etag"]) == (STATE, f'"{sha256(STATE)}"')
    assert whole.headers["content-disposition"] == 'attachment; filename="digits-v1.pt"'
    assert service.client.head(path).headers["content-length"] == str(len(STATE))
    part = service.client.get(path, headers={"Range": "bytes=5-9", "If-Range": f'"{sha256(STATE)}"'})
    assert (part.status_code, part.content) == (206, STATE[5:10])
    assert service.client.get(path, headers={"If-None-Match": f'"{sha256(STATE)}"'}).status_code == 304
    weights = service.client.get(path, params={"file": "model.safetensors"})
    assert weights.headers["content-disposition"] == 'attachment; filename="digits-v1-model.safetensors"'
    picture = service.client.get(path, params={"file": "overlays/a.png"})
    assert (picture.content, picture.headers["content-type"]) == (b"png", "image/png")
    assert picture.headers["content-security-policy"] == "default-src 'none'; sandbox"


@each_row(
    "path",
    [
        "bob/digits/versions/2",
        "bob/digits/versions/0",
        "bob/digits/versions/01",
        "bob/digits/versions/-1",
        "bob/digits/versions/9999999999",
        "bob/digits/versions/1/download?file=../state.pt",
        "bob/digits/versions/1/download?file=%00",
        "bob/other",
        "bob/%00",
        "%00/digits",
        "alice/digits",
    ],
)
def test_what_is_not_there_is_not_found(service: ApiFixture, version: str, path: str) -> None:
    assert version == "/v1/models/bob/digits/versions/1"
    assert_problem(service.client.get(f"/v1/models/{path}"), 404, "not_found")


def test_a_version_is_deleted_by_its_number_and_not_as_the_latest(service: ApiFixture, job: str) -> None:
    added(service, job)
    added(service, job, "latest")
    assert_problem(service.client.delete("/v1/models/bob/digits/versions/latest"), 404, "not_found")
    assert service.client.delete("/v1/models/bob/digits/versions/2").status_code == 204
    assert service.get("/v1/models/bob/digits")["newest"]["version"] == 1
    assert added(service, job, "latest")["version"] == 3
    assert service.client.delete("/v1/models/bob/digits").status_code == 204
    assert_problem(service.client.get("/v1/models/bob/digits"), 404, "not_found")
    assert added(service, job)["version"] == 4
    service.act_as("admin")
    found = service.get("/v1/audit", who="bob")["data"]
    assert [(entry["action"], entry["object"]) for entry in found][:3] == [
        ("model.add", f"bob/digits@4 of {job}/{service.get(f'/v1/jobs/{job}/checkpoints/best')['id']}"),
        ("model.delete", "bob/digits"),
        ("model.add", f"bob/digits@3 of {job}/{service.get(f'/v1/jobs/{job}/checkpoints/latest')['id']}"),
    ]
