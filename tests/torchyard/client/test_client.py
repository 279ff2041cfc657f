"""Calls, and what the answers to them become, by both clients."""

from dataclasses import replace
from datetime import UTC, datetime
import json
import math
from pathlib import Path
import socket
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.client.answers import JOB, NOW, job, line, page
from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem
from torchyard.client import Client
from torchyard.client.backoff import Backoff
from torchyard.contract.errors import (
    Conflict,
    InvalidSpec,
    NotAuthorized,
    NotFound,
    ServerError,
    ServerUnreachable,
    TooLarge,
    TooManyRequests,
    TorchyardError,
    Unavailable,
)
from torchyard.contract.states import JobState
from torchyard.host.privatefile import write_held

next_pause = Backoff.next_pause


def test_submit_sends_the_spec_the_token_and_a_new_idempotency_key(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    spec = {"trainer": "image-classification"}
    assert client.submit(spec).id == "job_1"
    client.submit(spec)
    client.submit(spec, idempotency_key="mine")
    first, second, third = server.requests
    assert (first.method, json.loads(first.body)) == ("POST", spec)
    assert first.headers["Authorization"] == f"Bearer {TOKEN}"
    keys = [request.headers["Idempotency-Key"] for request in (first, second, third)]
    assert len({*keys}) == 3 and keys[2] == "mine"


def test_a_resolved_spec_can_be_submitted_again(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    spec = client.submit({"trainer": "image-classification"}).view.spec
    assert client.submit(spec).view.spec == spec
    assert json.loads(server.requests[1].body)["time_limit"] == "1d"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_a_proxy_refuses_for_a_while_is_sent_again_with_the_same_key(
    server: FakeServer, client: Client, status: int
) -> None:
    server.on("/v1/jobs", Answer(b"<html>busy</html>", status, {"Retry-After": "0"}), Answer(job(), 201))
    assert client.submit({"trainer": "image-classification"}).id == "job_1"
    first, second = server.requests
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_a_spec_that_json_cannot_hold_is_not_sent(server: FakeServer, client: Client, value: Any) -> None:
    with pytest.raises(InvalidSpec):
        client.submit({"trainer": value})
    assert server.requests == []


def test_list_fetches_pages_as_they_are_needed(server: FakeServer, client: Client) -> None:
    pages = [page([job(id=f"job_{index}")], more=True, next=f"c{index}") for index in range(3)]
    server.on("/v1/jobs", *pages, page([job(id="job_3")]))
    assert [item.id for item in client.jobs.list(state=["queued", "running"])] == ["job_0", "job_1", "job_2", "job_3"]
    assert [request.query.get("after") for request in server.requests] == [None, ["c0"], ["c1"], ["c2"]]
    assert server.requests[0].query["state"] == ["queued", "running"]


def test_list_stops_at_its_limit(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([job(id="job_0"), job(id="job_1")], more=True, next="c"), page([job(), job()]))
    assert [item.id for item in client.jobs.list(limit=3)] == ["job_0", "job_1", "job_1"]
    assert len(server.requests) == 2


def test_list_searches_and_sorts_on_every_page(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([job()], more=True, next="-name:a:job_1"), page([]))
    assert len([*client.jobs.list(q="50%", sort="-name")]) == 1
    assert [request.query for request in server.requests] == [
        {"q": ["50%"], "sort": ["-name"]},
        {"q": ["50%"], "sort": ["-name"], "after": ["-name:a:job_1"]},
    ]


def test_jobs_are_counted_by_state(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", {**page([]), "counts": {"queued": 2, "failed": 1}, "total": 3})
    assert client.jobs.count(q="digits", labels={"team": "a"}) == {JobState.QUEUED: 2, JobState.FAILED: 1}
    assert server.requests[0].query == {"q": ["digits"], "label": ["team:a"], "counts": ["true"], "limit": ["1"]}


def test_an_action_names_jobs_or_a_filter(server: FakeServer, client: Client) -> None:
    refused = [{"job_id": "job_2", "code": "conflict", "message": "it has ended"}]
    server.on("/v1/jobs/actions", {"matched": 2, "done": 1, "refused": refused, "more": False})
    assert client.jobs.act("cancel", ["job_1", "job_2"]).refused[0].code == "conflict"
    client.jobs.act("delete", state=["failed"], labels={"team": "a"}, dry_run=True)
    client.jobs.act("cancel", owner="ada", now=True)
    assert [json.loads(request.body) for request in server.requests] == [
        {"action": "cancel", "dry_run": False, "ids": ["job_1", "job_2"]},
        {"action": "delete", "dry_run": True, "filter": {"state": ["failed"], "label": ["team:a"]}},
        {"action": "cancel", "dry_run": False, "now": True, "filter": {"owner": "ada"}},
    ]


def test_get_tries_an_id_first_then_the_newest_job_of_that_name(
    server: FakeServer, client: Client, approved: Approved
) -> None:
    server.on(JOB, job())
    assert client.get("job_1").id == "job_1"
    server.on("/v1/jobs", page([job(id="job_9", name="job_x"), job(id="job_8", name="job_x")]))
    server.on("/v1/jobs/job_9", job(id="job_9", name="job_x"))
    assert client.get("job_x").view == client.get("job_9").view
    assert server.requests[-3].query == {"name": ["job_x"], "limit": ["1"]}
    server.on("/v1/jobs", page([]))
    with pytest.raises(NotFound) as raised:
        client.get("other")
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("not_found", 404, NotFound),
        ("not_authorized", 401, NotAuthorized),
        ("conflict", 409, Conflict),
        ("some_new_code", 418, ServerError),
    ],
)
def test_a_problem_raises_the_class_of_its_code(
    server: FakeServer, client: Client, code: str, status: int, expected: type[TorchyardError], *, approved: Approved
) -> None:
    server.on(JOB, problem(code, status))
    with pytest.raises(TorchyardError) as caught:
        client.get("job_1")
    assert str(caught.value) == approved("message")
    assert type(caught.value) is expected


def test_field_errors_are_in_the_message_and_in_errors(server: FakeServer, client: Client, approved: Approved) -> None:
    server.on("/v1/jobs", problem("invalid_spec", 422, errors=[{"field": "config.lr", "message": "is no number"}]))
    with pytest.raises(InvalidSpec) as caught:
        client.submit({"trainer": "x"})
    assert str(caught.value) == approved("message")
    assert [(error.field, error.message) for error in caught.value.errors] == [("config.lr", "is no number")]


def test_a_spec_that_is_too_large_is_not_sent(server: FakeServer, client: Client) -> None:
    with pytest.raises(TooLarge, match="at most 262144"):
        client.submit({"trainer": "script", "env": {"SOME": "x" * 262_144}})
    assert server.requests == []


@pytest.mark.parametrize(
    "answer", [Answer(b"<html>", 500), Answer(b"<html>", 200), Answer({"hello": 1}, undocumented=True)]
)
def test_an_answer_of_another_kind_is_a_server_error(server: FakeServer, client: Client, answer: Answer) -> None:
    server.on(JOB, answer)
    with pytest.raises(ServerError, match="/v1/jobs/job_1"):
        client.get("job_1")


def test_a_call_is_repeated_after_a_broken_connection_if_that_is_harmless(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(), Answer(status=0), Answer(status=0), job())
    assert client.get("job_1").id == "job_1"  # a server that never answered is given up soon
    assert client.get("job_1").id == "job_1"
    server.on("/v1/jobs", Answer(status=0), Answer(job(), 201))
    assert client.submit({"trainer": "image-classification"}).id == "job_1"
    first, second = [request for request in server.requests if request.method == "POST"]
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    server.on(JOB, Answer(status=0), Answer(status=204))
    with pytest.raises(ServerUnreachable):
        client.jobs.delete("job_1")


def test_a_refused_call_is_repeated_after_the_pause_that_the_server_asks_for(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def skip(backoff: Backoff, error: TorchyardError) -> float:
        pauses.append(next_pause(backoff, error))
        return 0

    monkeypatch.setattr(Backoff, "next_pause", skip)
    server.on(JOB, refusal("too_many_requests", 429, 7), refusal("unavailable", 503, 3), job())
    assert client.get("job_1").id == "job_1"
    assert pauses == [7, 3]
    server.on(JOB, refusal("too_many_requests", 429, 2), Answer(b"", 204))
    client.jobs.delete("job_1")  # it was not executed the first time
    server.on(JOB, refusal("unavailable", 503, 1))
    with pytest.raises(Unavailable):
        client.jobs.delete("job_1")
    server.on(JOB, refusal("too_many_requests", 429, 1_000_000))
    with pytest.raises(TooManyRequests) as caught:
        client.get("job_1")
    assert caught.value.retry_after == 1_000_000
    assert pauses == [7, 3, 2]


def refusal(code: str, status: int, seconds: int) -> Answer:
    return replace(problem(code, status), headers={"Retry-After": str(seconds)})


def test_an_unreachable_server_raises_an_error_with_its_address_and_advice(connect: Connect, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    text = json.dumps({"url": url, "token": TOKEN})
    with (
        write_held(tmp_path / "server.json", text),
        connect(data_dir=tmp_path) as client,
        pytest.raises(ServerUnreachable) as caught,
    ):
        client.get("job_1")
    assert url in caught.value.message and "torchyard up" in caught.value.message


def test_values_that_are_no_json_numbers_arrive(server: FakeServer, client: Client) -> None:
    points = [{"step": 1, "value": value, "time": NOW, "attempt": 1} for value in ("NaN", "-Infinity", 0.5)]
    server.on(f"{JOB}/metrics", {"data": [{"key": "train/loss", "points": points}], "max_points": 1500})
    found = [point.value for point in client.jobs.metrics("job_1", keys=["train/loss", "val/loss"]).data[0].points]
    assert math.isnan(found[0]) and found[1:] == [-math.inf, 0.5]
    assert server.requests[0].query == {"key": ["train/loss", "val/loss"]}


def test_curves_arrive_in_columns(server: FakeServer, client: Client) -> None:
    columns = {"step": [1, 2], "time": [0.5, 1.5], "attempt": [1, 1], "mean": ["NaN", None], "ema": [None, 0.5]}
    curve = {"job_id": "job_1", "key": "a", "points": 2, "columns": columns}
    jobs = [{"job_id": "job_1", "position": 7, "keys": [{"key": "a", "count": 2, "latest": "Infinity"}]}]
    server.on("/v1/metrics", {"jobs": jobs, "series": [curve], "max_points": 1500})
    found = client.jobs.curves(["job_1", "job_2"], keys=["a"], smooth=0.9, from_step=1, hidden=True)
    assert (found.jobs[0].position, found.jobs[0].keys[0].latest) == (7, math.inf)
    shown = found.series[0].columns
    assert [str(value) for value in shown.mean] == ["nan", "None"]
    assert (shown.ema, shown.min) == ([None, 0.5], None)
    asked = {"job": ["job_1", "job_2"], "key": ["a"], "smooth": ["0.9"], "from_step": ["1"], "hidden": ["true"]}
    assert server.requests[0].query == asked
    assert client.jobs.curves(["job_1"]).max_points == 1500
    assert server.requests[1].query == {"job": ["job_1"]}


def test_attempts_are_read_to_the_last_page(server: FakeServer, client: Client) -> None:
    held = {"worker": "box-a", "index": None, "uuid": "cpu-0", "name": None}
    first = {"number": 1, "worker": "box-a", "started_at": NOW, "start_step": 0, "devices": [held]}
    second = {**first, "number": 2, "ended_at": NOW, "end_reason": "hang", "start_step": 5, "duration_seconds": 1.5}
    server.on(f"{JOB}/attempts", page([first], more=True, next="1"), page([second]))
    assert [(found.number, found.end_reason, found.start_step) for found in client.jobs.attempts("job_1")] == [
        (1, None, 0),
        (2, "hang", 5),
    ]
    assert server.requests[-1].query["after"] == ["1"]


def test_the_other_calls_send_what_the_interface_documents(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs/validate", {"spec": {"trainer": "image-classification"}})
    assert client.jobs.validate({"trainer": "image-classification"}).name == "image-classification"
    assert server.requests[-1].query == {}
    assert client.jobs.forecast({"trainer": "image-classification"}).spec.name == "image-classification"
    assert server.requests[-1].query == {"forecast": ["true"]}
    server.on("/v1/jobs", Answer(job(waits_for={"fits": True, "position": 1}), 201))
    submitted = client.submit({"trainer": "script"}, forecast=True).view.waits_for
    assert submitted is not None and submitted.fits
    assert server.requests[-1].query == {"forecast": ["true"]}
    server.on(f"{JOB}/retry", Answer(job(id="job_2", retry_of="job_1"), 201))
    assert client.jobs.retry("job_1").view.retry_of == "job_1"
    assert server.requests[-1].headers["Idempotency-Key"]
    assert server.requests[-1].body == b""
    client.jobs.retry("job_1", from_="epoch-3")
    assert json.loads(server.requests[-1].body) == {"from": "epoch-3"}
    server.on(JOB, job(name="b"))
    assert client.jobs.update("job_1", name="b", labels={}).name == "b"
    assert (server.requests[-1].method, json.loads(server.requests[-1].body)) == ("PATCH", {"name": "b", "labels": {}})
    server.on(JOB, Answer(b"", 204))
    client.jobs.delete("job_1")
    assert server.requests[-1].method == "DELETE"
    waits = {"code": "no_devices", "message": "needs 8", "since": NOW}
    entry = {"position": 1, "job_id": "job_1", "name": "a", "owner": "me", "priority": 0, "resources": {}}
    server.on("/v1/queue", page([{**entry, "reason": waits, "created_at": NOW}]))
    assert [entry.reason and entry.reason.message for entry in client.queue()] == ["needs 8"]
    server.on("/v1/jobs", page([]))
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert [*client.jobs.list(labels={"team": "a:b"}, created_after=moment, owner="me")] == []
    query = server.requests[-1].query
    assert (query["label"], datetime.fromisoformat(query["created_after"][0])) == (["team:a:b"], moment)


def test_advice_is_read(server: FakeServer, client: Client) -> None:
    seen = {"kind": "log", "text": "out of memory", "line": 7, "rank": 1}
    server.on(f"{JOB}/advice", {"headline": "failed", "evidence": [seen], "steps": ["Do less."], "severity": "error"})
    found = client.jobs.advice("job_1")
    assert (found.headline, found.cause, found.steps, found.severity) == ("failed", None, ["Do less."], "error")
    assert [item.model_dump() for item in found.evidence] == [seen]


def test_stacks_are_asked_for_and_then_read(server: FakeServer, client: Client) -> None:
    waiting = {"attempt": 1, "requested_at": NOW, "taken_at": None, "ranks": []}
    answer = {**waiting, "taken_at": NOW, "ranks": [{"rank": 0, "text": "in main", "note": None}]}
    server.on(f"{JOB}/stacks", Answer(waiting, 202), waiting, answer)
    assert [rank.text for rank in client.jobs.stacks("job_1").ranks] == ["in main"]
    assert [request.method for request in server.requests] == ["POST", "GET", "GET"]
    server.on(f"{JOB}/stacks", Answer(waiting, 202))
    with pytest.raises(TimeoutError, match="job_1 did not answer within 0 s"):
        client.jobs.stacks("job_1", timeout=0)


def test_a_checkpoint_named_as_the_parent_folder_does_not_change_the_path(server: FakeServer, client: Client) -> None:
    server.on(JOB, job())
    with pytest.raises(NotFound):
        client.jobs.checkpoint("job_1", "..")


def test_a_search_of_a_log_goes_on_behind_each_part(server: FakeServer, client: Client) -> None:
    part = {"matches": 0, "first_line": 1, "last_line": 50, "complete": False}
    server.on(
        f"{JOB}/logs/search",
        {**page([], more=True, next="50"), **part},
        {**page([{**line(60), "spans": [[0, 4]]}]), **part, "complete": True},
    )
    found = [*client.jobs.search_logs("job_1", "TEXT", regex=True, before=90)]
    assert [(item.line, item.spans) for item in found] == [(60, [(0, 4)])]
    assert [request.query["after"] for request in server.requests] == [["0"], ["50"]]
    assert server.requests[0].query["before"] == ["90"]


def test_lines_of_a_log_before_a_line_are_one_page(server: FakeServer, client: Client) -> None:
    server.on(f"{JOB}/logs", {**page([line(8), line(9)], more=True), "total": 50})
    assert [item.line for item in client.jobs.logs("job_1", before=10, limit=2, attempt=1, stream="stdout")] == [8, 9]
    assert [request.query for request in server.requests] == [
        {"before": ["10"], "limit": ["2"], "attempt": ["1"], "stream": ["stdout"]}
    ]
