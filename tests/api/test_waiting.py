"""`GET /v1/jobs/{id}`: `ETag`, `If-None-Match`, and `wait`."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
import threading
import time
from typing import Any

from httpx2 import Response

from store.announcement import Announcement
from store.db.database import Database
from tests.api.service import ApiFixture
from tests.rows import each_row
from torchyard.contract.states import EndReason

DEADLINE_S = 30.0


def look(service: ApiFixture, job_id: str, *, etag: str | None = None, **params: Any) -> Response:
    return service.client.get(
        f"/v1/jobs/{job_id}",
        params=params,
        headers={"Accept-Encoding": "identity", **({"If-None-Match": etag} if etag is not None else {})},
    )


@contextmanager
def waiting(service: ApiFixture, job_id: str) -> Generator[list[Response]]:
    """Runs a request that waits for a newer version during the block. Its answer is in the list after the block."""
    answers: list[Response] = []
    version = service.get(f"/v1/jobs/{job_id}")["version"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(look, service, job_id, wait=60, after_version=version)
        live = service.app.state.services.live
        until(lambda: live.watched(job_id))
        yield answers
        answers.append(asked.result(DEADLINE_S))


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)


def test_the_etag_changes_with_the_answer(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    first, again = look(service, job_id), look(service, job_id)
    etag = first.headers["ETag"]
    assert etag.startswith('"')
    assert (again.headers["ETag"], again.content) == (etag, first.content)
    assert first.headers["Cache-Control"] == "private, no-cache"
    for held in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        same = look(service, job_id, etag=held)
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag), held
    service.client.patch(f"/v1/jobs/{job_id}", json={"labels": {"a": "b"}})
    changed = look(service, job_id, etag=etag)
    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag


def test_a_newer_version_is_answered_at_once(service: ApiFixture) -> None:
    job = service.submit()
    assert look(service, job["id"], wait=60, after_version=job["version"] - 1).json() == job


def test_a_waiting_request_is_answered_when_the_job_changes(service: ApiFixture) -> None:
    job = service.submit()
    with waiting(service, job["id"]) as answers:
        service.client.patch(f"/v1/jobs/{job['id']}", json={"name": "renamed"})
    assert (answers[0].status_code, answers[0].json()["name"]) == (200, "renamed")


def test_a_wait_without_a_version_starts_at_the_present_one(service: ApiFixture) -> None:
    job = service.submit()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(look, service, job["id"], wait=60)
        names = (f"name-{number}" for number in range(10_000))
        until(lambda: service.client.patch(f"/v1/jobs/{job['id']}", json={"name": next(names)}) and asked.done())
    assert asked.result().json()["version"] > job["version"]


def test_a_wait_that_times_out_returns_the_unchanged_job(service: ApiFixture) -> None:
    job = service.submit()
    answer = look(service, job["id"], wait=0.05)
    assert (answer.status_code, answer.json()) == (200, job)
    assert look(service, job["id"], wait=0.05, etag=answer.headers["ETag"]).status_code == 304
    assert look(service, job["id"], wait=0.05, after_version=1000).json() == job


def test_waiting_for_a_job_that_is_deleted_gets_404(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.client.post(f"/v1/jobs/{job_id}/cancel")
    with waiting(service, job_id) as answers:
        service.client.delete(f"/v1/jobs/{job_id}")
    assert (answers[0].status_code, answers[0].json()["code"]) == (404, "not_found")


def test_progress_does_not_end_a_wait(service: ApiFixture) -> None:
    job = service.submit()
    claim = service.start(job["id"])
    version = service.get(f"/v1/jobs/{job['id']}")["version"]
    with waiting(service, job["id"]) as answers:
        service.record(claim, progress={"step": 1})
        service.queue.announce(Announcement(changed={job["id"]}))
        service.end(claim, reason=EndReason.COMPLETED)
        service.queue.announce(Announcement(changed={job["id"]}))
    assert (answers[0].json()["state"], answers[0].json()["version"]) == ("succeeded", version + 1)


def test_a_hundred_waiting_requests_hold_no_thread(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    live = service.app.state.services.live
    with ThreadPoolExecutor(100) as pool:
        before = threading.active_count()
        asked = [pool.submit(look, service, job_id, wait=60, after_version=1) for _ in range(100)]
        until(lambda: live.watched(job_id) == 100)
        assert service.get("/v1/jobs")["data"]  # other requests are answered meanwhile
        assert threading.active_count() - before - 100 < 50
        service.client.post(f"/v1/jobs/{job_id}/cancel")
        assert {future.result(DEADLINE_S).json()["state"] for future in asked} == {"cancelled"}
    assert live.watched(job_id) == 0


def test_a_wait_sees_a_change_without_redis(tmp_path: Path, database: Database) -> None:
    lonely = ApiFixture(tmp_path, database, f"unix://{tmp_path}/nobody.sock")
    with lonely.client:
        job_id = lonely.submit()["id"]
        with waiting(lonely, job_id) as answers:
            lonely.client.post(f"/v1/jobs/{job_id}/cancel")
        assert answers[0].json()["state"] == "cancelled"
    lonely.queue.close()


@each_row("params", [{"wait": 61}, {"wait": -1}, {"wait": "nan"}, {"wait": 1, "after_version": -1}])
def test_a_wait_out_of_range_is_refused(service: ApiFixture, params: dict[str, Any]) -> None:
    answer = look(service, service.submit()["id"], **params)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_waiting_for_another_users_job_gets_404(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    service.act_as("bob")
    assert look(service, job_id, wait=60).status_code == 404
    assert look(service, "job_1", wait=60).status_code == 404
