"""Ids, names and beginnings of ids that name a job or a checkpoint, and the next free name, by both clients."""

from collections.abc import Callable
import contextlib
from datetime import UTC, datetime
import inspect
from typing import Any

import pytest

from tests.torchyard.client.answers import JOB, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from torchyard.client import Client
from torchyard.contract.errors import Conflict, NotFound, ServerError

FIRST, SECOND = f"job_0192aa{'0' * 26}", f"job_0192ab{'0' * 26}"


def serve_jobs(server: FakeServer, *ids: str) -> None:
    """Answers that no job has the asked name, and then the jobs with these ids."""
    server.on("/v1/jobs", page([]), page([job(id=id) for id in ids]))
    for id in ids:
        server.on(f"/v1/jobs/{id}", job(id=id))


def test_the_beginning_of_one_id_names_its_job(server: FakeServer, client: Client) -> None:
    other = job(id="job_7", name="job_0192ab")  # the search finds names, too
    server.on("/v1/jobs", page([]), page([job(id=FIRST), other], more=True, next="c"), page([job(id=SECOND)]))
    server.on(f"/v1/jobs/{SECOND}", job(id=SECOND))
    assert client.get("job_0192ab").id == SECOND
    assert [request.query for request in server.requests[1:-1]] == [
        {"name": ["job_0192ab"], "limit": ["1"]},
        {"q": ["job_0192ab"]},
        {"q": ["job_0192ab"], "after": ["c"]},
    ]


def test_a_beginning_of_several_ids_names_no_job_and_lists_them(server: FakeServer, client: Client) -> None:
    serve_jobs(server, FIRST, SECOND)
    with pytest.raises(Conflict, match="several ids begin with job_0192") as caught:
        client.get("job_0192")
    assert f"{FIRST}  a, queued" in caught.value.message and SECOND in caught.value.message


def test_of_many_such_ids_few_are_fetched_and_listed(server: FakeServer, client: Client) -> None:
    ids = [f"job_0192{number:028x}" for number in range(8)]
    server.on("/v1/jobs", page([]), page([job(id=id) for id in ids], more=True, next="c"))
    with pytest.raises(Conflict) as caught:
        client.get("job_0192")
    assert caught.value.message.splitlines()[-1] == "  …"
    assert "after" not in server.requests[-1].query


def test_a_name_comes_before_the_beginning_of_an_id(server: FakeServer, client: Client) -> None:
    named = job(id=SECOND, name="job_0192aa")
    server.on("/v1/jobs", page([named]))
    server.on(f"/v1/jobs/{SECOND}", named)
    assert client.get("job_0192aa").id == SECOND


@pytest.mark.parametrize("ref", ["job_", "job_019", "0192aa", "job_0192zz", "other"])
def test_what_is_too_short_or_no_id_begins_none(server: FakeServer, client: Client, ref: str) -> None:
    serve_jobs(server, FIRST)
    with pytest.raises(NotFound, match="no job with the id or name"):
        client.get(ref)


OPERATIONS: dict[str, Callable[[Client, str], Any]] = {
    "advice": lambda client, ref: client.advice(ref),
    "update": lambda client, ref: client.update(job_id=ref, name="b"),
    "cancel": lambda client, ref: client.cancel(ref, now=True),
    "pause": lambda client, ref: client.pause(ref),
    "resume": lambda client, ref: client.resume(ref),
    "delete": lambda client, ref: client.delete(ref),
    "retry": lambda client, ref: client.retry(ref, idempotency_key="k"),
    "wait": lambda client, ref: client.wait(ref, timeout=1),
    "attempts": lambda client, ref: [*client.attempts(ref)],
    "events": lambda client, ref: [*client.events(ref, after=1)],
    "metrics": lambda client, ref: client.metrics(ref, keys=["loss"]),
    "logs": lambda client, ref: [*client.logs(job_id=ref, tail=3)],
    "search_logs": lambda client, ref: [*client.search_logs(ref, "x")],
    "lines_before": lambda client, ref: client.lines_before(ref, datetime.now(UTC)),
    "stacks": lambda client, ref: client.stacks(ref),
    "stream": lambda client, ref: [*client.stream(ref)],
    "follow": lambda client, ref: [*client.follow(ref)],
    "follow_logs": lambda client, ref: [*client.follow_logs(ref)],
    "checkpoints": lambda client, ref: [*client.checkpoints(ref)],
    "checkpoint": lambda client, ref: client.checkpoint(ref),
    "download": lambda client, ref: client.download(ref),
    "artifacts": lambda client, ref: [*client.artifacts(ref)],
    "download_artifact": lambda client, ref: client.download_artifact(ref, "a.txt"),
}
"""Every operation on a job: by which each finds it is the same."""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ref", [SECOND, "work-2", "job_0192ab", "job_train"])
def test_every_operation_on_a_job_takes_what_get_takes(
    server: FakeServer, client: Client, operation: str, ref: str
) -> None:
    named = job(id=SECOND, name=ref)
    server.on("/v1/jobs", page([named] if not ref.startswith("job_0") else []), page([named]))
    with contextlib.suppress(NotFound, ServerError):  # the server has nothing else
        OPERATIONS[operation](client, ref)
    paths = [request.path for request in server.requests]
    assert paths[-1].startswith(f"/v1/jobs/{SECOND}"), paths
    if ref != "job_train":  # a name that looks like an id is asked for first
        assert paths.count("/v1/jobs") == {SECOND: 0, "work-2": 1, "job_0192ab": 2}[ref]
        assert all(path.startswith(f"/v1/jobs/{SECOND}") for path in paths if path != "/v1/jobs")


def test_the_list_of_operations_on_a_job_is_whole() -> None:
    of_jobs = {
        name
        for name, method in vars(Client).items()
        if callable(method) and "job_id" in inspect.signature(method).parameters
    }
    assert of_jobs == {*OPERATIONS}


def test_what_names_no_job_is_an_error_that_says_so(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([]))
    for ref in ("work-2", "job_0192ab"):
        with pytest.raises(NotFound, match=f"no job with the id or name '{ref}'"):
            client.cancel(ref)
    assert [request.method for request in server.requests if request.method != "GET"] == []
    server.on(f"/v1/jobs/{SECOND}/logs", problem("not_found", 404))
    with pytest.raises(NotFound, match="What happened"):
        next(client.logs(SECOND))


def test_submit_get_retry_and_run_return_the_same_kind_of_job(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    server.on(JOB, job(state="succeeded"))
    server.on(f"{JOB}/retry", Answer(job(retry_of="job_1"), 201))
    for made in (client.submit({"trainer": "script"}), client.get("job_1"), client.retry("job_1")):
        assert made.view.id == "job_1"
        assert made.wait().state == "succeeded"


def test_without_a_ref_the_best_checkpoint_is_taken_and_else_the_latest(server: FakeServer, client: Client) -> None:
    view = {"id": "ckpt_1", "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "files": [], "aliases": []}
    view |= {"size": 1, "sha256": "0" * 64, "created_at": "2026-01-02T03:04:05Z"}
    server.on(f"{JOB}/checkpoints/latest", {**view, "aliases": ["latest"]})
    assert client.checkpoint("job_1").aliases == ["latest"]
    server.on(f"{JOB}/checkpoints/best", {**view, "aliases": ["best"]})
    assert client.checkpoint("job_1").aliases == ["best"]
    ids = [f"ckpt_0192a{digit}" for digit in "01"]
    server.on(f"{JOB}/checkpoints", page([{**view, "id": id} for id in ids]))
    server.on(f"{JOB}/checkpoints/ckpt_0192a1", view)
    server.on(f"{JOB}/checkpoints/ckpt_0192a1", {**view, "id": "ckpt_0192a1"})
    assert client.checkpoint("job_1", "ckpt_0192a1").id == "ckpt_0192a1"
    with pytest.raises(Conflict, match="several ids begin with ckpt_0192a"):
        client.checkpoint("job_1", "ckpt_0192a")
    with pytest.raises(NotFound):
        client.checkpoint("job_1", "epoch-4")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([[]], "net"),
        ([["net"], [], []], "net-2"),
        ([["net"], ["net-x", "my-net-9", "net-3", "net-12"], []], "net-4"),
        ([["net"], ["net-3"], ["net-4"], []], "net-5"),
    ],
)
def test_a_free_name_follows_that_of_the_newest_job(
    server: FakeServer, client: Client, answers: list[list[str]], expected: str
) -> None:
    server.on("/v1/jobs", *[page([job(name=name) for name in names]) for names in answers])
    assert client.free_name("net") == expected
    assert len(server.requests) == len(answers)


def test_a_free_name_is_never_too_long(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([job()]), page([]))
    assert client.free_name("n" * 100) == f"{'n' * 90}-2"
