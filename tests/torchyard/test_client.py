from collections.abc import Generator, Iterator
import json
import math
from pathlib import Path
import socket
from typing import Any

import pytest

from tests.torchyard.answers import DATA, JOB, NOW, event, job, line, metrics, page, serve_checkpoint
from tests.torchyard.fake_server import TOKEN, Answer, FakeServer, problem, serving
from torchyard.client import Client, MetricPoint
from torchyard.errors import (
    Conflict,
    InvalidSpec,
    NotAuthorized,
    NotFound,
    ServerError,
    ServerUnreachable,
    TorchyardError,
)
from torchyard.job import JobState
from torchyard.views import EventView, JobView, LogLine


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    _forget_servers(monkeypatch, tmp_path)
    with serving() as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Generator[Client]:
    with Client(server.url, TOKEN) as client:
        yield client


def test_submit_sends_the_spec_the_token_and_a_key(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    spec = {"trainer": "image-classification"}
    assert client.submit(spec).id == "job_1"
    client.submit(spec, idempotency_key="mine")
    first, second = server.asked
    assert (first.method, json.loads(first.body)) == ("POST", spec)
    assert first.headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Idempotency-Key" not in first.headers
    assert second.headers["Idempotency-Key"] == "mine"


def test_a_resolved_spec_can_be_submitted_again(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    spec = client.submit({"trainer": "image-classification"}).spec
    assert client.submit(spec).spec == spec
    assert json.loads(server.asked[1].body)["time_limit"] == "1d"


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_a_spec_that_is_no_json_is_refused_before_it_is_sent(server: FakeServer, client: Client, value: Any) -> None:
    with pytest.raises(InvalidSpec):
        client.submit({"trainer": value})
    assert server.asked == []


def test_list_fetches_pages_as_they_are_needed(server: FakeServer, client: Client) -> None:
    pages = [page([job(id=f"job_{index}")], more=True, next=f"c{index}") for index in range(3)]
    server.on("/v1/jobs", *pages, page([job(id="job_3")]))
    assert [item.id for item in client.list(state=["queued", "running"])] == ["job_0", "job_1", "job_2", "job_3"]
    assert [asked.query.get("after") for asked in server.asked] == [None, ["c0"], ["c1"], ["c2"]]
    assert server.asked[0].query["state"] == ["queued", "running"]


def test_list_stops_at_its_limit(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", page([job(id="job_0"), job(id="job_1")], more=True, next="c"), page([job(), job()]))
    assert len([*client.list(limit=3)]) == 3
    assert len(server.asked) == 2


def test_find_takes_an_id_first_then_the_newest_of_that_name(server: FakeServer, client: Client) -> None:
    server.on(JOB, job())
    assert client.find("job_1").id == "job_1"
    server.on("/v1/jobs", page([job(id="job_9", name="job_x"), job(id="job_8", name="job_x")]))
    assert client.find("job_x").id == "job_9"
    with pytest.raises(NotFound, match="no job with the id or name 'other'"):
        client.find("other")


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
    server: FakeServer, client: Client, code: str, status: int, expected: type[TorchyardError]
) -> None:
    server.on(JOB, problem(code, status))
    with pytest.raises(TorchyardError, match=r"What happened \(request req-7\)") as caught:
        client.get("job_1")
    assert type(caught.value) is expected


def test_field_errors_are_in_the_message_and_beside_it(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", problem("invalid_spec", 422, errors=[{"field": "config.lr", "message": "is no number"}]))
    with pytest.raises(InvalidSpec, match=r"config\.lr: is no number") as caught:
        client.submit({"trainer": "x"})
    assert [(error.field, error.message) for error in caught.value.errors] == [("config.lr", "is no number")]


@pytest.mark.parametrize("answer", [Answer(b"<html>", 502), Answer(b"<html>", 200), Answer({"hello": 1})])
def test_an_answer_of_something_else_is_a_server_error(server: FakeServer, client: Client, answer: Answer) -> None:
    server.on(JOB, answer)
    with pytest.raises(ServerError, match="/v1/jobs/job_1"):
        client.get("job_1")


def test_a_cut_connection_is_tried_again_only_where_that_is_harmless(server: FakeServer, client: Client) -> None:
    server.on(JOB, Answer(status=0), Answer(status=0), job())
    assert client.get("job_1").id == "job_1"
    server.on("/v1/jobs", Answer(status=0), Answer(job(), 201))
    with pytest.raises(ServerUnreachable):
        client.submit({"trainer": "image-classification"})
    server.on(f"{JOB}/cancel", Answer(status=0), job())
    with pytest.raises(ServerUnreachable):
        client.cancel("job_1")


def test_a_server_that_is_not_there_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _forget_servers(monkeypatch, tmp_path)
    url = f"http://127.0.0.1:{_closed_port()}"
    (tmp_path / "server.json").write_text(json.dumps({"url": url, "token": TOKEN}))
    with Client(data_dir=tmp_path) as client, pytest.raises(ServerUnreachable) as caught:
        client.get("job_1")
    assert url in caught.value.message and "torchyard up" in caught.value.message


def test_metrics_that_json_has_no_number_for_arrive(server: FakeServer, client: Client) -> None:
    points = [{"step": 1, "value": value, "time": NOW, "attempt": 1} for value in ("NaN", "-Infinity", 0.5)]
    server.on(f"{JOB}/metrics", {"data": [{"key": "train/loss", "points": points}]})
    found = [point.value for point in client.metrics("job_1", keys=["train/loss", "val/loss"]).data[0].points]
    assert math.isnan(found[0]) and found[1:] == [-math.inf, 0.5]
    assert server.asked[0].query == {"key": ["train/loss", "val/loss"]}


def test_download_verifies_and_names_the_file(server: FakeServer, client: Client, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA, {"Content-Disposition": 'attachment; filename="digits-epoch-3.pt"'})
    seen: list[tuple[int, int]] = []
    path = client.download("job_1", to=tmp_path / "work", on_progress=lambda done, total: seen.append((done, total)))
    assert (path, path.read_bytes()) == (tmp_path / "work" / "digits-epoch-3.pt", DATA)
    assert seen[-1] == (len(DATA), len(DATA))
    assert [*path.parent.iterdir()] == [path]
    assert client.download("job_1", to=tmp_path / "mine.pt").read_bytes() == DATA


@pytest.mark.parametrize("sent", [DATA[:-1], DATA[:-1] + b"x"])
def test_download_of_other_bytes_leaves_no_file(server: FakeServer, client: Client, sent: bytes) -> None:
    serve_checkpoint(server, sent)
    with pytest.raises(ServerError, match="is listed as"):
        client.download("job_1")
    assert [*Path.cwd().iterdir()] == []


def test_a_download_that_is_cut_leaves_no_file(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA[:10], {"Content-Length": str(len(DATA)), "Connection": "close"})
    with pytest.raises(ServerUnreachable):
        client.download("job_1")
    assert [*Path.cwd().iterdir()] == []


def test_a_server_cannot_choose_the_folder_of_a_download(server: FakeServer, client: Client, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA, {"Content-Disposition": 'attachment; filename="../evil.pt"'})
    assert client.download("job_1", to=tmp_path) == tmp_path / "ckpt_1.pt"


def test_follow_yields_everything_once_and_ends_with_the_job(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="queued"), job(state="running", attempt=1), job(state="succeeded", attempt=1))
    server.on(f"{JOB}/events", page([event(1, "queued")]), page([]), page([event(2, "succeeded")]))
    server.on(f"{JOB}/logs", page([]), page([line(1), line(2)]), page([line(3)]))
    server.on(f"{JOB}/metrics", metrics(loss=[1, 2]), metrics(loss=[2, 3], accuracy=[2, 3]))
    found = [_label(update) for update in client.follow("job_1")]
    assert found == [
        *("queued", "event 1", "running", "loss@1", "loss@2", "line 1", "line 2"),
        *("event 2", "accuracy@2", "loss@3", "accuracy@3", "line 3", "succeeded"),
    ]
    assert [asked.query["after"] for asked in server.asked if asked.path.endswith("/logs")] == [["0"], ["0"], ["2"]]


def test_follow_starts_a_new_attempts_metrics_from_the_beginning(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="running", attempt=1), job(state="succeeded", attempt=2))
    for part in ("events", "logs"):
        server.on(f"{JOB}/{part}", page([]))
    server.on(f"{JOB}/metrics", metrics(loss=[5]), metrics(loss=[5, 6]), metrics(loss=[3]))
    found = [_label(update) for update in client.follow("job_1")]
    assert found == ["running", "loss@5", "loss@6", "loss@3", "succeeded"]
    asked = [asked.query for asked in server.asked if asked.path.endswith("/metrics")]
    assert [(query["attempt"], query["from_step"]) for query in asked] == [
        (["1"], ["0"]),
        (["1"], ["5"]),
        (["2"], ["0"]),
    ]


def test_wait_gives_the_ended_job_or_times_out(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="running"), job(state="failed"))
    assert client.wait("job_1").state == JobState.FAILED
    server.on(JOB, job(state="running"))
    with pytest.raises(TimeoutError, match="still running"):
        client.wait("job_1", timeout=0)


def test_the_server_is_found_in_the_documented_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _forget_servers(monkeypatch, tmp_path)
    with pytest.raises(ServerUnreachable, match="torchyard up"):
        Client()
    _write_server(tmp_path / "work" / ".torchyard" / "server.json", "local")
    assert _found() == ("http://local", "token-local")
    _write_server(tmp_path / "config" / "torchyard" / "login.json", "login")
    assert _found() == ("http://login", "token-login")
    monkeypatch.setenv("TORCHYARD_URL", "http://env/")
    with pytest.raises(NotAuthorized, match="http://env"):
        Client()
    monkeypatch.setenv("TORCHYARD_TOKEN", "token-env")
    assert _found() == ("http://env", "token-env")
    assert _found("http://given", "token-given") == ("http://given", "token-given")


def test_a_broken_server_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _forget_servers(monkeypatch, tmp_path)
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(TorchyardError, match=r"server\.json"):
        Client(data_dir=tmp_path)


def _forget_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TORCHYARD_URL", "TORCHYARD_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def _found(*given: str) -> tuple[str, str]:
    with Client(*given) as client:
        return client.server.url, client.server.token


def _write_server(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"url": f"http://{name}", "token": f"token-{name}"}))


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _label(update: object) -> str:
    match update:
        case JobView():
            return update.state
        case EventView():
            return f"event {update.seq}"
        case MetricPoint():
            return f"{update.key}@{update.point.step}"
        case LogLine():
            return f"line {update.line}"
        case _:
            raise AssertionError(update)
