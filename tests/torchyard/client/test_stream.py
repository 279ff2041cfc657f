"""Streams, and what waits for a job or follows it, by both clients."""

from datetime import UTC, datetime
import math

import pytest

from tests.torchyard.client.answers import JOB, event, job, line, live, log_page, point, sse
from tests.torchyard.client.drivers import Connect
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem
from torchyard.client import Client, EndView, EventView, JobView, LiveLine, LogLine, MetricView
from torchyard.client.blocking import ask
from torchyard.client.core.telemetry import lines_before
from torchyard.contract.errors import NotFound, ServerError, ServerUnreachable
from torchyard.contract.states import JobState

END = ("end", 5, {"state": "succeeded"})


def test_a_stream_whose_connection_breaks_continues_after_its_last_item(server: FakeServer, client: Client) -> None:
    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "queued")), ("metric", 2, point("loss", 1, "NaN"))),
        Answer(status=0),
        problem("unavailable", 503),
        sse(("log", 4, line(1)), ("news", 5, {})),
        sse(("checkpoint", 6, {**event(6, "x"), "type": "checkpoint"}), ("end", 6, {"state": "failed"})),
    )
    items = [*client.jobs.stream("job_1", only=["state", "log"])]
    assert [(item.position, item.kind) for item in items] == [
        *((1, "state"), (2, "metric"), (4, "log"), (6, "checkpoint"), (6, "end"))
    ]
    assert isinstance(items[1].view, MetricView) and math.isnan(items[1].view.value)
    assert items[-1].view == EndView(state=JobState.FAILED)
    assert [request.headers.get("Last-Event-ID") for request in server.requests] == [None, "2", "2", "2", "4"]
    assert {tuple(request.query["only"]) for request in server.requests} == {("state", "log")}


def test_a_stream_raises_if_the_server_stays_unreachable(server: FakeServer, connect: Connect) -> None:
    server.on(f"{JOB}/stream", sse(("log", 1, line(1))), Answer(status=0))
    with connect(server.url, TOKEN, patience=0.3) as client:
        items = client.jobs.stream("job_1", after=7)
        assert next(items).position == 1
        with pytest.raises(ServerUnreachable):
            next(items)
    assert server.requests[0].headers["Last-Event-ID"] == "7"


@pytest.mark.parametrize("answer", [problem("not_found", 404), sse(("log", 1, {"text": "x"}))])
def test_a_stream_that_is_not_one_raises_at_once(server: FakeServer, client: Client, answer: Answer) -> None:
    server.on(f"{JOB}/stream", answer)
    with pytest.raises((NotFound, ServerError)):
        next(client.jobs.stream("job_1"))
    assert len(server.requests) == 1


def test_follow_yields_everything_once_and_ends_with_the_job(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="running", attempt=1), job(state="succeeded", attempt=1))
    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "running")), ("log", 2, line(1)), ("metric", 3, point("loss", 1))),
        sse(("log", 4, line(2)), ("state", 5, event(5, "succeeded")), ("end", 5, {"state": "succeeded"})),
    )
    found = [label(update) for update in client.jobs.follow("job_1")]
    assert found == ["running", "event 1", "line 1", "loss@1", "line 2", "event 5", "succeeded"]
    assert [*client.jobs.follow("job_1", logs=False, metrics=False)]
    assert {"log", "metric"}.isdisjoint(server.requests[-2].query["only"])


def test_follow_logs_skips_known_lines_and_other_ranks(server: FakeServer, client: Client) -> None:
    lines = [("log", 10 * number, {**line(number), "rank": number % 2}) for number in range(1, 7)]
    server.on(f"{JOB}/stream", sse(*lines, ("end", 60, {"state": "succeeded"})))
    assert [found.line for found in client.jobs.follow_logs("job_1", after=2, rank=1)] == [3, 5]
    assert server.requests[0].headers["Last-Event-ID"] == "2"


def test_lines_without_an_end_come_when_asked_for_and_are_no_place_to_go_on(server: FakeServer, client: Client) -> None:
    def sends() -> None:
        server.on(
            f"{JOB}/stream", sse(("log", 4, line(1)), ("live", None, live("9%"))), sse(("live", None, live("")), END)
        )

    sends()
    items = [*client.jobs.stream("job_1", live=True)]
    assert [(item.position, item.kind) for item in items] == [(4, "log"), (4, "live"), (4, "live"), (5, "end")]
    assert items[1].view == LiveLine.model_validate(live("9%"))
    assert server.requests[-1].headers["Last-Event-ID"] == "4"
    sends()
    assert [item.kind for item in client.jobs.stream("job_1")] == ["log", "end"]


def test_wait_returns_the_ended_job_or_raises_after_its_timeout(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="running", version=3), job(state="failed"))
    assert client.wait("job_1").state == JobState.FAILED
    assert [request.query for request in server.requests] == [{}, {"wait": ["20"], "after_version": ["3"]}]
    server.on(JOB, job(state="running"))
    with pytest.raises(TimeoutError, match="still running"):
        client.wait("job_1", timeout=0)


def test_lines_before_finds_the_last_line_before_a_moment(server: FakeServer) -> None:
    client = Client(server.url, TOKEN)
    server.on(f"{JOB}/logs", log_page([]))
    assert ask(client, lines_before, "job_1", datetime.now(UTC)) == 0
    server.on(f"{JOB}/logs", log_page([line(1)]))
    assert ask(client, lines_before, "job_1", datetime(2026, 1, 1, tzinfo=UTC)) == 0
    assert ask(client, lines_before, "job_1", datetime.now(UTC)) == 1
    late = {"time": "2026-01-02T04:00:00Z"}
    server.on(f"{JOB}/logs", log_page([{**line(4), **late}]), log_page([{**line(3), **late}]), log_page([line(2)]))
    assert ask(client, lines_before, "job_1", datetime(2026, 1, 2, 3, 30, tzinfo=UTC)) == 2
    assert [request.query.get("after") for request in server.requests[-3:]] == [None, ["2"], ["1"]]


def label(update: object) -> str:
    match update:
        case JobView():
            return update.state
        case EventView():
            return f"event {update.seq}"
        case MetricView():
            return f"{update.key}@{update.step}"
        case LogLine():
            return f"line {update.line}"
        case _:
            raise AssertionError(update)
