"""Reaches by several processes of the API: an end may come to any of them, and each may be killed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
import signal
from typing import Any

import httpx2
import pytest

from store.attempts.facts import Claim
from store.db.database import Database
from tests.api.raw import wait_until
from tests.api.reach_ends import DEADLINE_S, code_of_close, met
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_process
from tests.forked import ForkedProgram


@pytest.fixture
def processes(
    service: ApiFixture, tmp_path: Path, database: Database, redis_url: str
) -> Iterator[list[tuple[ForkedProgram, str]]]:
    """Two processes of the API, which know each other by the database and the data directory alone."""
    address = database.engine.url.render_as_string(hide_password=False)
    with ExitStack() as stack:
        yield [stack.enter_context(api_process(tmp_path, address, redis_url, f"api-{i}.log")) for i in range(2)]


@pytest.fixture
def claim(service: ApiFixture) -> Claim:
    return service.start(service.submit()["id"])


def open_reach(url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = httpx2.post(f"{url}{path}", json=body, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_ends_meet_although_each_has_come_to_another_process(
    service: ApiFixture, processes: list[tuple[ForkedProgram, str]], claim: Claim
) -> None:
    (_, one), (_, other) = processes
    path = f"/v1/jobs/{claim.job_id}/reaches"
    for first in ("client", "worker"):
        opened = open_reach(one, path, {"kind": "program", "argv": ["cat"]})
        with met(opened, client=one, worker=other, first=first) as (client, worker):
            client.send(b"to the job")
            assert worker.recv(timeout=DEADLINE_S) == b"to the job"
            worker.send(b"x" * 200_000)
            assert sum(len(client.recv(timeout=DEADLINE_S)) for _ in range(1)) > 0
            worker.close()
            code_of_close(client)
        wait_until(lambda: service.get(path)["data"] == [])
        said = f"{opened['id']} of {claim.job_id}: 10 bytes to the job, 200000 from it"
        wait_until(lambda said=said: said in [entry["object"] for entry in service.get("/v1/audit")["data"]])


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_death_of_either_process_cuts_both_ends_and_they_meet_again(
    processes: list[tuple[ForkedProgram, str]], claim: Claim, killed: int
) -> None:
    urls = [url for _, url in processes]
    body = {"kind": "program", "terminal": {}}
    opened = open_reach(urls[0], f"/v1/jobs/{claim.job_id}/reaches", body)
    with met(opened, client=urls[0], worker=urls[1]) as (client, worker):
        processes[killed][0].send_signal(signal.SIGKILL)
        ends = [worker, client]
        assert code_of_close(ends[killed]) == 1001
    left = urls[1 - killed]
    again = open_reach(left, f"/v1/reaches/{opened['id']}/meetings")
    with met(again, client=left, worker=left) as (client, worker):
        client.send(b"on")
        assert worker.recv(timeout=DEADLINE_S) == b"on"
