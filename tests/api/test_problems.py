"""Every error is answered as an RFC 9457 problem."""

from collections.abc import Iterator
import json
import logging
from pathlib import Path
import re
from typing import Any

from httpx2 import Headers, Response
import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from store.db.database import Database
from tests.api.service import SPEC, TOKEN, ApiFixture
from tests.approved import Approved
from tests.rows import each_row
import torchyard
from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.view import Problem

NOBODY = "job_" + "0" * 32
OPEN = ("/healthz", "/readyz", "/docs/rest", "/openapi.json")
PRIVATE = (
    "/v1/jobs",
    f"/v1/jobs/{NOBODY}",
    f"/v1/jobs/{NOBODY}/checkpoints/best/download",
    "/v1/trainers",
    "/v1/workers",
)
WRONG = ("Bearer wrong", f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \xe9")
MALFORMED_CURSORS = ("", "x", "-1", "1.5", "٣", "9" * 30, "job_x", "job_" + "0" * 31, "\x00")
LISTS = ("/v1/jobs", "/v1/jobs/{id}/events", "/v1/jobs/{id}/logs", "/v1/jobs/{id}/checkpoints", "/v1/workers")


def assert_problem(answer: Response, status: int, code: str) -> Problem:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    found = Problem.model_validate_json(answer.content)
    assert (found.status, found.code, found.type) == (status, code, f"urn:torchyard:problem:{code}")
    assert found.request_id == answer.headers["X-Request-ID"]
    assert found.title
    assert found.detail
    return found


@pytest.fixture
def large(tmp_path: Path, database: Database, redis_url: str) -> Iterator[TestClient]:
    """A client of a service with the default limit on bodies."""
    service = ApiFixture(tmp_path, database, redis_url)
    app = create_app(service.settings.model_copy(update={"max_body_bytes": 1_048_576}))
    with TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client
    service.queue.close()


def fields(found: Problem) -> list[str]:
    return [error.field for error in found.errors]


@pytest.mark.parametrize("header", [None, *WRONG])
def test_requests_without_the_token_are_refused(service: ApiFixture, header: str | None) -> None:
    stranger = TestClient(service.app)
    if header is not None:
        stranger.headers = Headers({"Authorization": header}, encoding="latin-1")
    answers = [stranger.get(path) for path in PRIVATE]
    answers.append(stranger.post("/v1/jobs", json=SPEC))
    answers.append(stranger.post("/v1/jobs", content=b"x" * 20_000))
    for answer in answers:
        assert_problem(answer, 401, "not_authorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert service.queued_rows() == []


def test_health_and_docs_need_no_token(service: ApiFixture) -> None:
    stranger = TestClient(service.app)
    assert [stranger.get(path).status_code for path in OPEN] == [200] * len(OPEN)


def test_the_service_does_not_start_without_a_token(tmp_path: Path) -> None:
    for token in (None, ""):
        with pytest.raises(ConfigError, match="TORCHYARD_TOKEN"):
            create_app(Settings(data_dir=tmp_path, token=token))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"config": {"training": {"epochs": 10**40}}}, "config.training.epochs"),
        ({"max_restarts": 1e300}, "max_restarts"),
        ({"resources": {"nodes": 2}}, "resources.nodes"),
        ({"stop_grace": "3650d"}, "stop_grace"),
        ({"trainer": "telepathy"}, "trainer"),
    ],
)
def test_an_invalid_spec_is_refused_with_the_name_of_the_field(
    service: ApiFixture, spec: dict[str, Any], field: str, approved: Approved
) -> None:
    """What else is wrong with a spec: tests/torchyard/contract/wire/test_findings.py and test_spec.py."""
    found = assert_problem(service.client.post("/v1/jobs", json={**SPEC, **spec}), 422, "invalid_spec")
    assert fields(found) == [field]
    assert found.errors[0].message == approved.of_row("message")
    assert service.queued_rows() == []


def test_every_wrong_field_is_named(service: ApiFixture) -> None:
    found = assert_problem(
        service.client.post("/v1/jobs", json={**SPEC, "priority": "x", "no": 1}), 422, "invalid_spec"
    )
    assert sorted(fields(found)) == ["no", "priority"]


@each_row(
    "body",
    [
        b"",
        b"{",
        b"trainer: script",
        b"\xff\xfe\x00binary\x80",
        b'{"trainer": "image-classification", "priority": NaN}',
        b'{"trainer": "image-classification", "priority": Infinity}',
        b'{"name": "\\ud800"}',
        b"[" * 9_000,
        b'{"a":' * 1_500 + b"1" + b"}" * 1_500,
        b"9" * 5_000,
    ],
)
def test_a_body_that_is_not_json_is_refused(service: ApiFixture, body: bytes) -> None:
    assert_problem(service.client.post("/v1/jobs", content=body), 422, "invalid_request")


@each_row("body", [b"[]", b"null", b'"text"', b"1e999", b'{"a":' * 100 + b"1" + b"}" * 100])
def test_json_that_is_not_a_spec_is_refused(service: ApiFixture, body: bytes) -> None:
    assert_problem(service.client.post("/v1/jobs", content=body), 422, "invalid_spec")


RAW = re.compile(
    r"Input should|Value error|String should|Extra inputs|Field required|unable to parse|not allowed here|\^"
)
"""Words of pydantic, an expression, and our words for what we have no words for."""
JUNK: dict[str, Any] = {
    "keys": {"trainer": "image-classification", **{f"{number:x}": 0 for number in range(4_000)}},
    "labels": {"trainer": "image-classification", "labels": {f"-{number:x}": 0 for number in range(4_000)}},
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_an_answer_lists_the_first_50_errors_and_counts_the_others(large: TestClient, junk: dict[str, Any]) -> None:
    found = assert_problem(large.post("/v1/jobs/validate", json=junk), 422, "invalid_spec")
    assert len(found.errors) == 51
    assert found.errors[-1].field == ""
    assert re.fullmatch(r"and \d{4} more", found.errors[-1].message)


def test_a_spec_of_very_many_values_is_refused_as_a_whole(large: TestClient, approved: Approved) -> None:
    found = assert_problem(
        large.post("/v1/jobs/validate", json={"trainer": "script", "args": [0] * 20_000}), 422, "invalid_spec"
    )
    assert [(error.field, error.message) for error in found.errors] == [("args", approved("text"))]


@pytest.mark.parametrize("path", ["/v1/jobs/validate", "/v1/jobs"])
def test_a_spec_above_256_kib_is_refused(large: TestClient, path: str, approved: Approved) -> None:
    spec = json.dumps(SPEC).encode()
    assert large.post(path, content=spec + b" " * (262_144 - len(spec))).is_success
    found = assert_problem(large.post(path, content=spec + b" " * (262_145 - len(spec))), 413, "too_large")
    assert found.detail == approved("detail")


def test_a_body_above_the_limit_is_refused_with_and_without_its_length(service: ApiFixture) -> None:
    limit = service.settings.max_body_bytes
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(20):
            sent += limit // 10
            yield b" " * (limit // 10)

    found = assert_problem(service.client.post("/v1/jobs", content=b" " * (limit + 1)), 413, "too_large")
    assert str(limit) in found.detail
    assert_problem(service.client.post("/v1/jobs", content=chunks()), 413, "too_large")
    assert sent > limit
    assert_problem(service.client.post("/v1/jobs", content=b" " * limit), 422, "invalid_request")


@each_row(
    "job_id",
    [NOBODY, "job_1", "nonsense", "%00", "job_" + "0" * 32 + "%0a", "ckpt_" + "0" * 32, "é", "x" * 5_000],
)
def test_an_unknown_or_malformed_id_is_not_found(service: ApiFixture, job_id: str) -> None:
    for part in ("", "/events", "/metrics", "/logs", "/checkpoints", "/checkpoints/best", "/checkpoints/best/download"):
        assert_problem(service.client.get(f"/v1/jobs/{job_id}{part}"), 404, "not_found")
    assert_problem(service.client.post(f"/v1/jobs/{job_id}/cancel"), 404, "not_found")
    assert_problem(service.client.get(f"/v1/workers/{job_id}"), 404, "not_found")


@each_row("path", LISTS)
def test_a_malformed_cursor_is_refused(service: ApiFixture, path: str) -> None:
    job_id = service.submit()["id"]
    for cursor in MALFORMED_CURSORS:
        answer = service.client.get(path.format(id=job_id), params={"after": cursor})
        assert_problem(answer, 422, "invalid_cursor")
    assert_problem(service.client.get(path.format(id=job_id), params={"after": "x" * 201}), 422, "invalid_request")


def test_a_checkpoint_of_another_job_is_an_invalid_cursor(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    answer = service.client.get(f"/v1/jobs/{job_id}/checkpoints", params={"after": "ckpt_" + "0" * 32})
    assert_problem(answer, 422, "invalid_cursor")


@each_row(
    ("path", "params", "field"),
    [
        ("/v1/jobs", {"limit": 0}, "limit"),
        ("/v1/jobs", {"limit": 1001}, "limit"),
        ("/v1/jobs", {"limit": "many"}, "limit"),
        ("/v1/jobs", {"limit": 10**30}, "limit"),
        ("/v1/jobs", {"state": "sleeping"}, "state.0"),
        ("/v1/jobs", {"name": "nul\x00"}, "name"),
        ("/v1/jobs/{id}/metrics", {"max_points": 1}, "max_points"),
        ("/v1/jobs/{id}/metrics", {"max_points": 100_001}, "max_points"),
        ("/v1/jobs/{id}/metrics", {"from_step": -1}, "from_step"),
        ("/v1/jobs/{id}/metrics", {"to_step": 2**63}, "to_step"),
        ("/v1/jobs/{id}/metrics", {"attempt": 2**31}, "attempt"),
        ("/v1/jobs/{id}/metrics", {"key": "nul\x00"}, "key.0"),
        ("/v1/jobs/{id}/logs", {"tail": 0}, "tail"),
        ("/v1/jobs/{id}/logs", {"rank": "first"}, "rank"),
        ("/v1/jobs/{id}/logs", {"rank": 2**31}, "rank"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(
    service: ApiFixture, path: str, params: dict[str, Any], field: str
) -> None:
    job_id = service.submit()["id"]
    found = assert_problem(service.client.get(path.format(id=job_id), params=params), 422, "invalid_request")
    assert fields(found) == [field]


@each_row("path", ["/jobs.html", "/v1", "/v1/nothing", "/v1/jobs/", "/v2/jobs"])
def test_an_unknown_path_is_not_found(service: ApiFixture, path: str) -> None:
    assert_problem(service.client.get(path), 404, "unknown_route")


def test_every_answer_says_the_services_version(service: ApiFixture) -> None:
    for path in ("/v1/jobs", "/v1/nothing", "/healthz"):
        assert service.client.get(path).headers["Torchyard-Version"] == torchyard.__version__


def test_a_method_that_a_path_lacks_is_refused_with_those_it_has(service: ApiFixture) -> None:
    answer = service.client.delete("/v1/jobs")
    assert_problem(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, POST"
    assert service.client.put("/healthz").headers["Allow"] == "GET"
    assert service.client.put("/v1/jobs/validate").headers["Allow"] == "POST"
    assert service.client.put("/v1/jobs/nobody").headers["Allow"] == "GET, PATCH, DELETE"
    assert service.client.post("/docs").headers["Allow"] == "GET, HEAD"


def test_every_answer_has_a_request_id_the_callers_own_if_it_is_valid(service: ApiFixture) -> None:
    sent = {"X-Request-ID": "build-7.a_b"}
    assert service.client.get("/v1/jobs", headers=sent).headers["X-Request-ID"] == "build-7.a_b"
    assert assert_problem(service.client.get("/v1/x", headers=sent), 404, "unknown_route").request_id == "build-7.a_b"
    for unsound in ("", "a b", "x" * 101, "a;b"):
        made = service.client.get("/healthz", headers={"X-Request-ID": unsound}).headers["X-Request-ID"]
        assert made.startswith("req_")


def test_an_internal_error_is_answered_without_its_traceback_which_is_logged(
    service: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("the secret of the service")

    service.app.add_api_route("/broken", broken)
    answer = service.client.get("/broken")
    found = assert_problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert found.request_id in caplog.text
    assert "the secret of the service" in caplog.text


def test_without_the_database_requests_are_answered_by_503(
    tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    db = Database(f"sqlite:///{tmp_path}/absent/torchyard.db")
    service = ApiFixture(tmp_path, db, redis_url)
    with service.client, caplog.at_level(logging.WARNING):
        assert_problem(service.client.post("/v1/jobs", json=SPEC), 503, "unavailable")
        answer = service.client.get("/v1/jobs")
        assert_problem(answer, 503, "unavailable")
        ready = service.client.get("/readyz")
        assert answer.headers["Retry-After"] == ready.headers["Retry-After"] == "1"
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert (ready.json()["database"], ready.json()["redis"]) == ("does not answer", "ok")
        assert service.client.get("/healthz").json() == {"status": "ok"}
    assert "unable to open database file" in caplog.text
    service.queue.close()
    db.close()


def test_blobs_that_are_not_mounted_any_more_are_answered_503(service: ApiFixture) -> None:
    claim = service.start(service.submit()["id"])
    service.record(claim, checkpoints=[service.new_checkpoint(step=1, files={"state.pt": b"weights"})])
    download = f"/v1/jobs/{claim.job_id}/checkpoints/latest/download"
    assert service.client.get(download).content == b"weights"
    blobs = service.settings.blobs
    blobs.rename(elsewhere := blobs.with_name("elsewhere"))
    blobs.mkdir()
    for answer in (
        service.client.get(download),
        service.client.get("/v1/bundles"),
        service.client.put(f"/v1/bundles/{'0' * 64}", params={"size": 5}, content=b"hello"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
        assert answer.headers["Retry-After"]
    assert [*blobs.iterdir()] == []
    blobs.rmdir()
    elsewhere.rename(blobs)
    assert service.client.get(download).content == b"weights"


def test_no_wrong_parameter_is_answered_in_words_of_a_library(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    seen, tried = 0, set[str]()
    whole = service.app.openapi()
    for path, methods in whole["paths"].items():
        for found in methods.get("get", {}).get("parameters", []):
            reference = found.get("$ref", "").rpartition("/")[2]
            parameter = whole["components"]["parameters"][reference] if reference else found
            if parameter["in"] != "query" or "stream" in path:
                continue
            # The same parameter of another route gets one value: only what the route itself reads may differ.
            is_new = (declared := json.dumps(parameter, sort_keys=True)) not in tried
            tried.add(declared)
            for value in ("", "-1", "no number", "x" * 5_000, "\x00") if is_new else ("no number",):
                where = re.sub(r"\{\w+\}", "nobody", path.replace("{job_id}", job_id))
                answer = service.client.get(where, params={parameter["name"]: value})
                if answer.status_code == 422:
                    seen += 1
                    assert RAW.search(answer.text) is None, answer.text
    assert seen > 50
