"""Clients that submit at the same moment share a commit, and none of them waits for another's trouble."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
import socket
from urllib.parse import urlsplit

from httpx2 import Response
import pytest

from api.submissions import MOST, THREADS, Submissions
from bench.load import post
from store.jobs.submission import KeyedRequest, Submission, Submitted
from store.team import users
from store.team.callers import SERVICE
from tests.api.raw import read_answer, wait_until
from tests.api.service import SPEC, TOKEN, ApiFixture, both_databases
from tests.api.serving import api_thread
from tests.api.writes import writes
from torchyard.contract.spec.spec import parse_spec

CLIENTS = 16


def send(service: ApiFixture, key: object) -> Response:
    return service.client.post("/v1/jobs", json=SPEC, headers={"Idempotency-Key": str(key)})


def send_all(service: ApiFixture, pool: ThreadPoolExecutor) -> list[Future[Response]]:
    """Has each client send one submission, with its number as the key."""
    return [pool.submit(send, service, number) for number in range(CLIENTS)]


def stored(service: ApiFixture) -> list[str]:
    return sorted(job["id"] for job in service.get("/v1/jobs")["data"])


@both_databases
def test_those_who_come_while_others_commit_share_one_commit(service: ApiFixture) -> None:
    with writes(service) as seen, ThreadPoolExecutor(CLIENTS) as pool:
        seen.go.clear()
        sent = send_all(service, pool)
        wait_until(lambda: service.app.state.services.submissions.waiting == CLIENTS - THREADS)
        assert not any(each.done() for each in sent)  # no answer before the commit
        seen.go.set()
        answers = [each.result() for each in sent]
        assert seen.commits == THREADS + 1
    assert {answer.status_code for answer in answers} == {201}
    assert sorted(answer.json()["id"] for answer in answers) == stored(service)


@both_databases
def test_after_a_refused_commit_each_answers_503_and_may_be_sent_again(service: ApiFixture) -> None:
    with writes(service) as seen, ThreadPoolExecutor(CLIENTS) as pool:
        seen.refuse = True
        answers = [each.result() for each in send_all(service, pool)]
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "unavailable")}
        assert len({answer.json()["request_id"] for answer in answers}) == CLIENTS
        seen.refuse = False
        assert stored(service) == []
        again = [each.result() for each in send_all(service, pool)]
    assert {(answer.status_code, "Idempotent-Replayed" in answer.headers) for answer in again} == {(201, False)}
    assert len(stored(service)) == CLIENTS


@both_databases
def test_each_is_audited_by_its_own_request(service: ApiFixture) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [each.result() for each in send_all(service, pool)]
    entries = service.get("/v1/audit", action="job.submit")["data"]
    made = {(answer.json()["id"], answer.headers["X-Request-ID"]) for answer in answers}
    assert {(entry["object"], entry["request_id"]) for entry in entries} == made
    assert len(entries) == CLIENTS


def test_who_leaves_before_the_transaction_is_not_stored_and_who_leaves_later_is_stored_once(
    service: ApiFixture,
) -> None:
    store, spec = service.app.state.services.store, parse_spec(SPEC)

    def wanted(key: int) -> Submission:
        return Submission(spec, SERVICE, "private", KeyedRequest(SERVICE.name, str(key), "f"))

    async def submit_all(leaving: set[int]) -> list[Submitted | BaseException]:
        submissions = Submissions(store)
        tasks = [asyncio.ensure_future(submissions.submit(wanted(key))) for key in range(CLIENTS)]
        await asyncio.sleep(0)  # the first ones are in the threads' hands now, and the others wait
        for key in leaving:
            tasks[key].cancel()
        seen.go.set()
        try:
            return await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            submissions.close()

    with writes(service) as seen:
        seen.go.clear()
        first = asyncio.run(submit_all({0, CLIENTS - 1}))
        assert [isinstance(made, Submitted) for made in first] == [False, *[True] * (CLIENTS - 2), False]
        wait_until(lambda: len(stored(service)) == CLIENTS - 1)
        again = asyncio.run(submit_all(set()))
    assert [made.replayed for made in again if isinstance(made, Submitted)] == [*[True] * (CLIENTS - 1), False]
    assert len(stored(service)) == CLIENTS


@both_databases
def test_clients_that_close_their_connections_are_stored_once(service: ApiFixture, tmp_path: Path) -> None:
    folder, database = tmp_path / "api", service.settings.database_url
    folder.mkdir()
    assert database is not None

    def request(key: int) -> bytes:
        return post("/v1/jobs", SPEC, token=TOKEN).replace(b"\r\n", f"\r\nIdempotency-Key: {key}\r\n".encode(), 1)

    with api_thread(service.settings.data_dir, database, service.settings.redis_url or "") as url:
        parts = urlsplit(url)
        for leaves in (True, False):
            opened = [socket.create_connection((parts.hostname or "", parts.port or 0)) for _ in range(CLIENTS)]
            for key, connection in enumerate(opened):
                connection.sendall(request(key))
            for key, connection in enumerate(opened):
                if leaves and key % 2:
                    connection.close()
                    continue
                assert read_answer(connection, method="POST").status == 201
                connection.close()
    assert len(stored(service)) == CLIENTS


def test_more_than_one_transaction_takes_are_stored_too(service: ApiFixture) -> None:
    count = 2 * MOST + 20

    async def submit_all() -> list[Submitted]:
        submissions = Submissions(service.app.state.services.store)
        spec = parse_spec(SPEC)
        wanted = [Submission(spec, SERVICE, "private") for _ in range(count)]
        try:
            return await asyncio.gather(*map(submissions.submit, wanted))
        finally:
            submissions.close()

    with writes(service) as seen:
        made = asyncio.run(submit_all())
        assert seen.commits == THREADS + 3
    assert len({each.job.id for each in made}) == count


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_user_whose_row_is_locked_holds_up_nobody_else(service: ApiFixture) -> None:
    service.act_as("bob")
    service.act_as("admin")
    service.client.put("/v1/quotas/users/bob", json={"queued": CLIENTS})
    bob = {"Authorization": f"Bearer {service.client.post('/v1/tokens', json={'user': 'bob'}).json()['token']}"}
    with ThreadPoolExecutor(CLIENTS) as pool, service.database.write() as session:
        users.lock(session, "bob")
        theirs = [pool.submit(service.client.post, "/v1/jobs", json=SPEC, headers=bob) for _ in range(CLIENTS // 2)]
        assert [send(service, number).status_code for number in range(5)] == [201] * 5
        assert not any(each.done() for each in theirs)
        session.rollback()
        assert {each.result().status_code for each in theirs} == {201}
    assert len(stored(service)) == 5 + CLIENTS // 2
