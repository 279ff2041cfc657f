"""`GET /v1/jobs/{id}`: `ETag`, `If-None-Match`, and `wait`."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
import threading
import time
from typing import Any

from httpx2 import Response
import pytest

from store.announcement import Announcement
from store.db.database import Database
from tests.api.house import House
from torchyard.contract.job import EndReason

DEADLINE_S = 30.0


def look(house: House, job_id: str, *, etag: str | None = None, **params: Any) -> Response:
    return house.client.get(
        f"/v1/jobs/{job_id}", params=params, headers={"If-None-Match": etag} if etag is not None else {}
    )


@contextmanager
def waiting(house: House, job_id: str) -> Generator[list[Response]]:
    """A request that waits for a newer version while the block runs; its answer is in the list after the block."""
    answers: list[Response] = []
    version = house.get(f"/v1/jobs/{job_id}")["version"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(look, house, job_id, wait=60, after_version=version)
        live = house.app.state.services.live
        until(lambda: live.watched(job_id))
        yield answers
        answers.append(asked.result(DEADLINE_S))


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)


def test_the_etag_names_the_answer(house: House) -> None:
    job_id = house.submit()["id"]
    first, again = look(house, job_id), look(house, job_id)
    etag = first.headers["ETag"]
    assert etag.startswith('"')
    assert (again.headers["ETag"], again.content) == (etag, first.content)
    assert first.headers["Cache-Control"] == "private, no-cache"
    for held in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        same = look(house, job_id, etag=held)
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag), held
    house.client.patch(f"/v1/jobs/{job_id}", json={"labels": {"a": "b"}})
    changed = look(house, job_id, etag=etag)
    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag


def test_a_version_that_is_newer_is_answered_at_once(house: House) -> None:
    job = house.submit()
    assert look(house, job["id"], wait=60, after_version=job["version"] - 1).json() == job


def test_who_waits_is_answered_when_the_job_changes(house: House) -> None:
    job = house.submit()
    with waiting(house, job["id"]) as answers:
        house.client.patch(f"/v1/jobs/{job['id']}", json={"name": "renamed"})
    assert (answers[0].status_code, answers[0].json()["name"]) == (200, "renamed")


def test_without_a_version_the_one_at_the_arrival_counts(house: House) -> None:
    job = house.submit()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(look, house, job["id"], wait=60)
        names = (f"name-{number}" for number in range(10_000))
        until(lambda: house.client.patch(f"/v1/jobs/{job['id']}", json={"name": next(names)}) and asked.done())
    assert asked.result().json()["version"] > job["version"]


def test_a_wait_ends_with_the_job_as_it_is(house: House) -> None:
    job = house.submit()
    answer = look(house, job["id"], wait=0.05)
    assert (answer.status_code, answer.json()) == (200, job)
    assert look(house, job["id"], wait=0.05, etag=answer.headers["ETag"]).status_code == 304
    assert look(house, job["id"], wait=0.05, after_version=1000).json() == job


def test_who_waits_for_a_job_that_is_deleted_is_told(house: House) -> None:
    job_id = house.submit()["id"]
    house.client.post(f"/v1/jobs/{job_id}/cancel")
    with waiting(house, job_id) as answers:
        house.client.delete(f"/v1/jobs/{job_id}")
    assert (answers[0].status_code, answers[0].json()["code"]) == (404, "not_found")


def test_progress_is_no_change_that_ends_a_wait(house: House) -> None:
    job = house.submit()
    claim = house.start(job["id"])
    version = house.get(f"/v1/jobs/{job['id']}")["version"]
    with waiting(house, job["id"]) as answers:
        house.record(claim, progress={"step": 1})
        house.queue.announce(Announcement(changed={job["id"]}))
        house.end(claim, reason=EndReason.COMPLETED)
        house.queue.announce(Announcement(changed={job["id"]}))
    assert (answers[0].json()["state"], answers[0].json()["version"]) == ("succeeded", version + 1)


def test_a_hundred_who_wait_hold_no_thread(house: House) -> None:
    job_id = house.submit()["id"]
    live = house.app.state.services.live
    with ThreadPoolExecutor(100) as pool:
        before = threading.active_count()
        asked = [pool.submit(look, house, job_id, wait=60, after_version=1) for _ in range(100)]
        until(lambda: live.watched(job_id) == 100)
        assert house.get("/v1/jobs")["data"]  # others are answered meanwhile
        assert threading.active_count() - before - 100 < 50
        house.client.post(f"/v1/jobs/{job_id}/cancel")
        assert {future.result(DEADLINE_S).json()["state"] for future in asked} == {"cancelled"}
    assert live.watched(job_id) == 0


def test_without_redis_a_change_is_seen_all_the_same(tmp_path: Path, database: Database) -> None:
    lonely = House(tmp_path, database, f"unix://{tmp_path}/nobody.sock")
    with lonely.client:
        job_id = lonely.submit()["id"]
        with waiting(lonely, job_id) as answers:
            lonely.client.post(f"/v1/jobs/{job_id}/cancel")
        assert answers[0].json()["state"] == "cancelled"
    lonely.queue.close()


@pytest.mark.parametrize("params", [{"wait": 61}, {"wait": -1}, {"wait": "nan"}, {"wait": 1, "after_version": -1}])
def test_a_wait_out_of_range_is_refused(house: House, params: dict[str, Any]) -> None:
    answer = look(house, house.submit()["id"], **params)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_another_users_job_cannot_be_waited_for(house: House) -> None:
    job_id = house.submit()["id"]
    house.act_as("bob")
    assert look(house, job_id, wait=60).status_code == 404
    assert look(house, "job_1", wait=60).status_code == 404
