"""`POST /v1/jobs/batch`: many jobs with one request, each with its own id or error, or all or none."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
import json
import logging
import socket
from typing import Any
from urllib.parse import urlsplit

from httpx2 import Response
import pytest

from api.routes import batches as route
from bench.load import post
from store.jobs import batches
from tests.api.raw import wait_until
from tests.api.service import SPEC, TOKEN, ApiFixture, both_databases
from tests.api.serving import api_thread
from tests.api.writes import full_after, locked_after, writes
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.rows import each_row
from torchyard.contract.jobs.requests import MOST_ATOMIC_JOBS, MOST_BATCH_BYTES, MOST_JOBS

WRONG = {"trainer": "image-classification", "priority": 1000}
PART = 5


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a transaction store few jobs, so that a small batch has several."""
    monkeypatch.setattr(batches, "MOST", PART)


def send(service: ApiFixture, jobs: Iterable[Any], *, key: str | None = None, **more: Any) -> Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    content = json.dumps({"jobs": [*jobs], **more})
    return service.client.post("/v1/jobs/batch", content=content, headers=headers)


def named(count: int) -> list[dict[str, Any]]:
    return [{**SPEC, "name": f"job-{number}"} for number in range(count)]


def ids(answer: Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["data"]]


def errors(answer: Response) -> dict[int, str]:
    """Returns the codes of the errors by index."""
    assert answer.status_code == 200, answer.text
    return {item["index"]: item["error"]["code"] for item in answer.json()["data"] if "error" in item}


def problem(answer: Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return answer.json()


def stored(service: ApiFixture) -> dict[str, str]:
    """Returns the names of all jobs by id."""
    return {job["id"]: job["name"] for job in service.get("/v1/jobs", limit=1000)["data"]}


def act_as_limited(service: ApiFixture, *, queued: int) -> None:
    """Makes further requests come from a user who may have so many queued jobs."""
    service.act_as("bob")
    service.act_as("admin")
    assert service.client.put("/v1/quotas/users/bob", json={"queued": queued}).status_code == 204
    service.act_as("bob")


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_each_job_has_its_own_id_or_error_in_order(service: ApiFixture, approved: Approved) -> None:
    jobs = named(2 * PART + 2)
    jobs[3] = WRONG
    with writes(service) as seen:
        answer = send(service, jobs)
        assert seen.commits == 3
    assert [item["index"] for item in answer.json()["data"]] == [*range(len(jobs))]
    assert errors(answer) == {3: "invalid_spec"}
    assert answer.json()["data"][3]["error"]["errors"] == [{"field": "priority", "message": approved("message")}]
    made = {item["id"]: f"job-{item['index']}" for item in answer.json()["data"] if "id" in item}
    assert stored(service) == made
    entries = service.get("/v1/audit", action="job.submit")["data"]
    assert {entry["object"] for entry in entries} == {*made}
    assert {entry["request_id"] for entry in entries} == {answer.headers["X-Request-ID"]}


@both_databases
def test_an_atomic_batch_stores_all_or_none(service: ApiFixture) -> None:
    assert len(ids(send(service, named(3), atomic=True))) == 3
    refused = problem(send(service, [SPEC, WRONG, SPEC, 7], atomic=True), 422)
    assert refused["code"] == "invalid_spec"
    assert "job 1" in refused["detail"]
    assert [error["field"] for error in refused["errors"]] == ["jobs.1.priority", "jobs.3"]
    act_as_limited(service, queued=2)
    refused = problem(send(service, named(3), atomic=True), 403)
    assert refused["code"] == "quota_exceeded"
    assert [error["field"] for error in refused["errors"]] == ["jobs.2"]
    assert stored(service) == {}
    service.act_as("admin")
    assert len(stored(service)) == 3


@quick_on_sqlite
@pytest.mark.usefixtures("small_parts")
def test_a_batch_counts_as_its_jobs_in_the_quota(service: ApiFixture) -> None:
    act_as_limited(service, queued=PART + 2)
    found = errors(send(service, named(PART + 4)))
    assert found == dict.fromkeys((PART + 2, PART + 3), "quota_exceeded")
    assert errors(send(service, [SPEC])) == {0: "quota_exceeded"}


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_a_repeated_batch_answers_the_same_ids(service: ApiFixture) -> None:
    jobs = [*named(PART + 2), WRONG]
    first = send(service, jobs, key="k")
    assert send(service, jobs, key="k").json() == first.json()
    assert len(stored(service)) == PART + 2
    assert len(ids(send(service, named(2), key="other"))) == 2
    assert len(ids(send(service, named(2)))) == len(ids(send(service, named(2)))) == 2


def test_a_key_belongs_to_one_request(service: ApiFixture) -> None:
    one = ids(send(service, named(2), key="k"))
    for other in (
        send(service, named(3), key="k"),
        send(service, named(2), key="k", atomic=True),
        service.client.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": "k"}),
    ):
        found = problem(other, 422)
        assert found["code"] == "idempotency_mismatch"
        assert "'k'" in found["detail"]
    assert service.client.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": "single"}).status_code == 201
    assert problem(send(service, named(2), key="single"), 422)["code"] == "idempotency_mismatch"
    assert {*one} < {*stored(service)}
    assert len(stored(service)) == 3
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = service.client.post("/v1/jobs/batch", json={"jobs": [SPEC]}, headers=twice)
    assert problem(answer, 422)["errors"][0]["field"] == "Idempotency-Key"


def test_the_longest_key_of_a_user_meets_no_other(service: ApiFixture) -> None:
    keys = ["k" * 255, "k" * 254, "k" * 254 + "0"]
    made = [ids(send(service, named(2), key=key)) for key in keys]
    assert [ids(send(service, named(2), key=key)) for key in keys] == made
    assert len(stored(service)) == 6


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_a_database_that_goes_away_in_the_middle_stops_the_batch_which_goes_on_later(service: ApiFixture) -> None:
    jobs = named(3 * PART)
    with writes(service) as seen:
        seen.refuse_after = 1
        stopped = send(service, jobs, key="k")
        assert seen.commits == 2, "the rest is not tried"
    assert_goes_on(service, jobs, stopped)


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_a_disk_that_is_full_in_the_middle_stops_the_batch_which_goes_on_later(service: ApiFixture) -> None:
    large = {"env": {"NOTE": "x" * 30_000}}  # more than what is free in the pages that the database has
    jobs = [{"trainer": "script", "config": {"code": "file:///code"}, "name": f"job-{n}", **large} for n in range(12)]
    with full_after(service, 1):
        stopped = send(service, jobs, key="k")
    assert_goes_on(service, jobs, stopped)


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_a_database_that_is_locked_in_the_middle_stops_the_batch_which_goes_on_later(service: ApiFixture) -> None:
    jobs = named(2 * PART + 2)
    with locked_after(service, 1) as seen:
        stopped = send(service, jobs, key="k")
        assert seen.commits == 1, "nobody waits for the lock for each job"
    assert_goes_on(service, jobs, stopped)


def assert_goes_on(service: ApiFixture, jobs: list[dict[str, Any]], stopped: Response) -> None:
    """Asserts that of a batch the first part alone was stored and answered, and that the same key stores the rest."""
    assert errors(stopped) == dict.fromkeys(range(PART, len(jobs)), "unavailable")
    first = [item["id"] for item in stopped.json()["data"][:PART]]
    assert {*stored(service)} == {*first}
    whole = ids(send(service, jobs, key="k"))
    assert whole[:PART] == first
    assert [stored(service)[job_id] for job_id in whole] == [job["name"] for job in jobs]
    assert len(stored(service)) == len(jobs)


@both_databases
def test_a_database_that_is_away_from_the_start_is_503(service: ApiFixture) -> None:
    with writes(service) as seen:
        seen.refuse = True
        assert problem(send(service, named(2), key="k"), 503)["code"] == "unavailable"
        assert problem(send(service, named(2), atomic=True), 503)["code"] == "unavailable"
    assert stored(service) == {}
    assert len(ids(send(service, named(2), key="k"))) == 2


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_clients_with_one_key_make_each_job_once(service: ApiFixture) -> None:
    jobs = named(2 * PART)
    with ThreadPoolExecutor(16) as pool:
        answers = [each.result() for each in [pool.submit(send, service, jobs, key="k") for _ in range(16)]]
    assert len({tuple(ids(answer)) for answer in answers}) == 1
    assert len(stored(service)) == 2 * PART


@both_databases
@pytest.mark.usefixtures("small_parts")
def test_a_client_that_leaves_stops_its_batch_after_the_part_that_has_begun(
    service: ApiFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    jobs = named(4 * PART)
    request = post("/v1/jobs/batch", {"jobs": jobs}, token=TOKEN)
    keyed = request.replace(b"\r\n", b"\r\nIdempotency-Key: k\r\n", 1)
    settings = service.settings
    with api_thread(settings.data_dir, settings.database, settings.redis) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
            connection.sendall(keyed)
            wait_until(lambda: bool(stored(service)))
        wait_until(lambda: "is not complete" in caplog.text or len(stored(service)) == len(jobs))
    assert len(stored(service)) % PART == 0
    first = {*stored(service)}
    assert first <= {*ids(send(service, jobs, key="k"))}
    assert len(stored(service)) == len(jobs)


@each_row(
    "body",
    [
        {"jobs": []},
        {"jobs": [SPEC] * (MOST_JOBS + 1)},
        {"jobs": [SPEC] * (MOST_ATOMIC_JOBS + 1), "atomic": True},
        {"jobs": {"0": SPEC}},
        {"jobs": "jobs"},
        {"jobs": None},
        {"jobs": [SPEC], "atomic": "yes"},
        {"jobs": [SPEC], "atomic": 1},
        {"jobs": [SPEC], "wait": True},
        {f"key-{number}": [] for number in range(5_000)},
        {},
        [SPEC],
        None,
        7,
    ],
)
def test_what_is_no_batch_is_refused(service: ApiFixture, body: Any) -> None:
    found = problem(service.client.post("/v1/jobs/batch", content=json.dumps(body)), 422)
    assert found["code"] == "invalid_request"
    assert 0 < len(found["errors"]) <= 51
    assert stored(service) == {}


@pytest.mark.parametrize("spec", [None, 7, "spec", [], {}, [[SPEC]], {"trainer": 7}, {**SPEC, "name": "\x00"}], ids=str)
def test_what_is_no_spec_is_an_error_of_its_own(service: ApiFixture, spec: Any) -> None:
    assert errors(send(service, [SPEC, spec, SPEC])) == {1: "invalid_spec"}
    assert len(stored(service)) == 2


def test_of_a_key_that_is_there_twice_the_last_counts(service: ApiFixture) -> None:
    body = f'{{"jobs": [7], "jobs": [{json.dumps(SPEC)}]}}'
    assert len(ids(service.client.post("/v1/jobs/batch", content=body))) == 1
    assert problem(service.client.post("/v1/jobs/batch", content=body[:-1]), 422)["code"] == "invalid_request"


def test_a_batch_may_be_larger_than_other_bodies_up_to_its_own_limit(service: ApiFixture) -> None:
    assert service.settings.max_body_bytes < MOST_BATCH_BYTES
    wide = [{**SPEC, "labels": {"note": "x" * 200}}] * 100
    assert len(ids(send(service, wide))) == 100
    sent = 0

    def endless() -> Iterable[bytes]:
        nonlocal sent
        while sent < 4 * MOST_BATCH_BYTES:
            sent += 1 << 20
            yield b" " * (1 << 20)

    for content in (b" " * (MOST_BATCH_BYTES + 1), endless()):
        found = problem(service.client.post("/v1/jobs/batch", content=content), 413)
        assert found["code"] == "too_large"
    assert len(stored(service)) == 100


def test_a_batch_of_too_many_values_is_not_parsed(service: ApiFixture) -> None:
    body = b'{"jobs": [' + b"[]," * 600_000 + b"[]]}"
    assert problem(service.client.post("/v1/jobs/batch", content=body), 413)["code"] == "too_large"


def test_a_spec_that_would_be_too_large_alone_is_too_large_in_a_batch(service: ApiFixture) -> None:
    large = {**SPEC, "env": {f"NAME_{number}": "x" * 32_768 for number in range(8)}}
    assert errors(send(service, [SPEC, large])) == {1: "too_large"}


def test_long_checks_are_cut_into_parts(service: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "_PART_S", 0)
    turns, begin = [], service.app.state.services.writes.go_on

    async def counted(user: str, part: Any) -> Any:
        turns.append(user)
        return await begin(user, part)

    monkeypatch.setattr(service.app.state.services.writes, "go_on", counted)
    assert len(ids(send(service, named(10)))) == 10
    assert len(turns) > 10


def test_a_batch_counts_as_its_jobs_in_the_rate(service: ApiFixture) -> None:
    service.act_as("ada")
    ada = service.client.headers["Authorization"].removeprefix("Bearer ")
    settings = service.settings
    with api_thread(settings.data_dir, settings.database, settings.redis, max_requests_per_second=2) as url:
        parts = urlsplit(url)

        def status(jobs: int) -> bytes:
            with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
                connection.sendall(post("/v1/jobs/batch", {"jobs": named(jobs)}, token=ada))
                return connection.recv(12).split()[1]

        assert [status(15), status(15)] == [b"200", b"429"]
    assert len(stored(service)) == 15


def test_a_viewer_may_not_submit_a_batch(service: ApiFixture) -> None:
    service.act_as("eve", role="viewer")  # pyright: ignore[reportArgumentType]
    assert problem(send(service, named(1)), 403)["code"] == "forbidden"
