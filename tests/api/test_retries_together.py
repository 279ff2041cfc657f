"""Retries of jobs share commits, as submissions do, and each has its own answer or error."""

from concurrent.futures import Future, ThreadPoolExecutor

from httpx2 import Response
import pytest

from api.submissions import THREADS
from store.jobs import jobs
from tests.api.raw import wait_until
from tests.api.service import SPEC, ApiFixture, both_databases
from tests.api.test_retry import finished
from tests.api.writes import writes

CLIENTS = 16


def ended(service: ApiFixture) -> str:
    job_id = service.submit()["id"]
    assert service.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    return job_id


def retry(service: ApiFixture, job_id: str, key: str) -> Response:
    return service.client.post(f"/v1/jobs/{job_id}/retry", headers={"Idempotency-Key": key})


def retry_all(service: ApiFixture, pool: ThreadPoolExecutor, jobs: list[str]) -> list[Future[Response]]:
    return [pool.submit(retry, service, job_id, job_id) for job_id in jobs]


def retried(service: ApiFixture) -> list[str]:
    """Returns the jobs that were retried, each as often as it was."""
    listed = service.get("/v1/jobs")["data"]
    return sorted(job["retry_of"] for job in listed if job["retry_of"] is not None)


@both_databases
def test_retries_and_submissions_that_come_while_others_commit_share_one_commit(service: ApiFixture) -> None:
    old = [ended(service) for _ in range(CLIENTS // 2)]
    with ThreadPoolExecutor(CLIENTS) as pool, writes(service) as seen:
        seen.go.clear()
        sent = retry_all(service, pool, old)
        submitted = [pool.submit(service.client.post, "/v1/jobs", json=SPEC) for _ in range(CLIENTS // 2)]
        wait_until(lambda: service.app.state.services.submissions.waiting == CLIENTS - THREADS)
        assert not any(each.done() for each in sent)  # no answer before the commit
        seen.go.set()
        answers = [each.result() for each in sent]
        assert {each.result().status_code for each in submitted} == {201}
        assert seen.commits == THREADS + 1
    assert [(answer.status_code, answer.json()["retry_of"]) for answer in answers] == [(201, job) for job in old]
    audited = service.get("/v1/audit", action="job.retry")["data"]
    made = {(f"{a.json()['retry_of']} as {a.json()['id']}", a.headers["X-Request-ID"]) for a in answers}
    assert {(entry["object"], entry["request_id"]) for entry in audited} == made
    for answer in answers:
        events = service.get(f"/v1/jobs/{answer.json()['id']}/events")["data"]
        assert [event["seq"] for event in events] == [1, 2]


@both_databases
def test_one_job_that_is_retried_by_many_with_one_key_is_retried_once(service: ApiFixture) -> None:
    job_id = ended(service)
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [each.result() for each in [pool.submit(retry, service, job_id, "one") for _ in range(CLIENTS)]]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == CLIENTS - 1
    assert retried(service) == [job_id]


@both_databases
def test_an_error_is_the_answer_to_its_own_retry_alone(service: ApiFixture) -> None:
    old = [ended(service) for _ in range(CLIENTS - 2)]
    queued = service.submit()["id"]
    missing = f"job_{'0' * (len(queued) - 4)}"
    with ThreadPoolExecutor(CLIENTS) as pool:
        sent = retry_all(service, pool, [queued, *old, missing])
        codes = [each.result().status_code for each in sent]
    assert codes == [409, *[201] * len(old), 404]
    assert retried(service) == sorted(old)


@both_databases
def test_after_a_refused_commit_each_retry_answers_503_and_may_be_sent_again(service: ApiFixture) -> None:
    old = [ended(service) for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool, writes(service) as seen:
        seen.refuse = True
        answers = [each.result() for each in retry_all(service, pool, old)]
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "unavailable")}
        seen.refuse = False
        assert retried(service) == []
        again = [each.result() for each in retry_all(service, pool, old)]
    assert {(answer.status_code, "Idempotent-Replayed" in answer.headers) for answer in again} == {(201, False)}
    assert retried(service) == sorted(old)


@both_databases
def test_the_answer_to_a_retry_is_the_job_as_it_is_read_later(service: ApiFixture) -> None:
    old = finished(service, 5, 10)
    answer = retry(service, old, "k").json()
    assert answer["best"]["step"] == 10
    assert answer == service.get(f"/v1/jobs/{answer['id']}")


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_job_whose_row_is_locked_holds_up_no_other_retry(service: ApiFixture) -> None:
    locked, *others = [ended(service) for _ in range(6)]
    with ThreadPoolExecutor(CLIENTS) as pool, service.database.write() as session:
        jobs.lock(session, locked)
        waits = [pool.submit(retry, service, locked, str(number)) for number in range(CLIENTS // 2)]
        assert [retry(service, job_id, job_id).status_code for job_id in others] == [201] * 5
        assert not any(each.done() for each in waits)
        session.rollback()
        assert {each.result().status_code for each in waits} == {201}
    assert retried(service) == sorted([locked] * (CLIENTS // 2) + others)
