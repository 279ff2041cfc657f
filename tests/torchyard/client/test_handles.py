"""A job and its checkpoints as objects, of both clients."""

import json
from pathlib import Path
import sys
from typing import Any

import pytest

from tests.torchyard.client.answers import DATA, JOB, event, job, metrics, page, serve_checkpoint, sse
from tests.torchyard.client.fake_server import Answer, FakeServer
from torchyard.client import Client, Job
from torchyard.contract.errors import NotFound
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState


@pytest.fixture
def running(server: FakeServer, client: Client) -> Job:
    server.on(JOB, job(state="running", version=2))
    return client.get("job_1")


def test_a_job_is_found_by_its_id_and_waited_for(server: FakeServer, running: Job) -> None:
    assert (running.id, running.name, running.state) == ("job_1", "a", JobState.RUNNING)
    server.on(JOB, job(state="succeeded", version=3))
    assert running.wait().state is JobState.SUCCEEDED
    assert running.state is JobState.SUCCEEDED


def test_a_job_that_does_not_end_in_time_is_said_to_be_running(running: Job) -> None:
    with pytest.raises(TimeoutError, match="still running"):
        running.wait(timeout=0)


def test_following_a_job_keeps_its_newest_view(server: FakeServer, running: Job) -> None:
    server.on(f"{JOB}/stream", sse(("state", 1, event(1, "running")), ("end", 2, {"state": "succeeded"})))
    seen: list[Any] = []
    for update in running.follow():
        seen.append(update)
        server.on(JOB, job(state="succeeded", version=3))
    assert isinstance(seen[0], JobView)
    assert running.state is JobState.SUCCEEDED


def test_metrics_are_lists_by_key(server: FakeServer, running: Job) -> None:
    answer = metrics(loss=[1, 2], lr=[1])
    answer["data"][1]["source"] = "tensorboard"
    server.on(f"{JOB}/metrics", answer)
    found = running.metrics()
    assert [*found] == ["loss", "lr"]
    assert (found["loss"].steps, found["loss"].values, found["loss"].source) == ([1, 2], [1.0, 1.0], "run")
    assert found["lr"].source == "tensorboard"
    running.metrics("loss", max_points=7)
    assert server.requests[-1].query == {"key": ["loss"], "max_points": ["7"]}


def test_metrics_become_a_frame_where_pandas_is(
    server: FakeServer, running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on(f"{JOB}/metrics", metrics(loss=[1, 2], lr=[1]))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError):
        running.metrics().frame()
    monkeypatch.undo()
    frame = running.metrics().frame()
    assert [*frame.columns] == ["loss", "lr"]
    assert [*frame.index] == [1, 2]


def test_the_best_checkpoint_is_downloaded(server: FakeServer, running: Job, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA)
    best = running.best_checkpoint()
    assert (best.id, best.epoch, best.step) == ("ckpt_1", 3, 9)
    path = best.download(tmp_path / "best.pt")
    assert path.read_bytes() == DATA


def test_a_job_without_a_checkpoint_has_no_best_one(server: FakeServer, running: Job) -> None:
    server.on(f"{JOB}/checkpoints", page([]))
    assert [*running.checkpoints()] == []
    with pytest.raises(NotFound):
        running.latest_checkpoint()


def test_a_cancel_may_be_forced(server: FakeServer, running: Job) -> None:
    server.on(f"{JOB}/cancel", Answer(job(state="running"), 202))
    running.cancel()
    running.cancel(now=True)
    assert [request.query for request in server.requests[-2:]] == [{}, {"now": ["true"]}]


@pytest.mark.parametrize("action", ["cancel", "pause", "resume"])
def test_an_action_keeps_what_the_server_answers(server: FakeServer, running: Job, action: str) -> None:
    server.on(f"{JOB}/{action}", Answer(job(state="paused", version=9), 202))
    assert getattr(running, action)().version == 9
    assert running.view.version == 9


def test_a_job_is_retried_from_one_of_its_checkpoints(server: FakeServer, running: Job) -> None:
    server.on(f"{JOB}/retry", Answer(job(id="job_2", retry_of="job_1"), 201))
    again = running.retry(from_="best")
    assert (type(again), again.id, again.view.retry_of) == (type(running), "job_2", "job_1")
    assert json.loads(server.requests[-1].body) == {"from": "best"}
