from collections.abc import Generator, Iterator
from datetime import UTC, datetime
import fcntl
import json
import math
from pathlib import Path
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.torchyard.client.answers import DATA, JOB, NOW, SHA256, event, job, line, page, point, serve_checkpoint, sse
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem, serving
from torchyard.client import Client, End, MetricPoint
from torchyard.contract.errors import (
    ConfigError,
    Conflict,
    InvalidSpec,
    NotAuthorized,
    NotFound,
    ServerError,
    ServerUnreachable,
    TorchyardError,
)
from torchyard.contract.job import JobState
from torchyard.contract.views import EventView, JobView, LogLine


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    _forget_servers(monkeypatch, tmp_path)
    with serving() as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Generator[Client]:
    with Client(server.url, TOKEN) as client:
        yield client


def test_submit_sends_the_spec_the_token_and_a_key_of_its_own(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    spec = {"trainer": "image-classification"}
    assert client.submit(spec).id == "job_1"
    client.submit(spec)
    client.submit(spec, idempotency_key="mine")
    first, second, third = server.asked
    assert (first.method, json.loads(first.body)) == ("POST", spec)
    assert first.headers["Authorization"] == f"Bearer {TOKEN}"
    keys = [asked.headers["Idempotency-Key"] for asked in (first, second, third)]
    assert len({*keys}) == 3 and keys[2] == "mine"


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
    assert server.asked[-1].query == {"name": ["job_x"], "limit": ["1"]}
    server.on("/v1/jobs", page([]))
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


def test_a_cut_connection_is_tried_again_where_that_is_harmless(server: FakeServer, client: Client) -> None:
    server.on(JOB, Answer(status=0), Answer(status=0), job())
    assert client.get("job_1").id == "job_1"
    server.on("/v1/jobs", Answer(status=0), Answer(job(), 201))
    assert client.submit({"trainer": "image-classification"}).id == "job_1"
    first, second = [asked for asked in server.asked if asked.method == "POST"]
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    server.on(JOB, Answer(status=0), Answer(status=204))
    with pytest.raises(ServerUnreachable):
        client.delete("job_1")


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


def test_a_download_that_stays_cut_keeps_what_arrived_for_the_next_one(server: FakeServer, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA[:10], {"Content-Length": str(len(DATA)), "Connection": "close"})
    with Client(server.url, TOKEN, patience=0.3) as client, pytest.raises(ServerUnreachable):
        client.download("job_1", to="mine.pt")
    [part] = Path.cwd().iterdir()
    assert (part.name, part.read_bytes()) == (f"mine.pt.{SHA256[:12]}.part", DATA[:10])
    rest = {"Content-Range": f"bytes 10-{len(DATA) - 1}/{len(DATA)}"}
    serve_checkpoint(server, DATA[10:], rest, status=206)
    seen: list[int] = []
    with Client(server.url, TOKEN) as client:
        client.download("job_1", to="mine.pt", on_progress=lambda done, _: seen.append(done))
    assert (server.asked[-1].headers["Range"], server.asked[-1].headers["If-Range"]) == ("bytes=10-", f'"{SHA256}"')
    assert [path.read_bytes() for path in Path.cwd().iterdir()] == [DATA]
    assert seen[0] == 10


def test_what_is_kept_of_a_download_is_begun_anew_where_the_server_sends_all(
    server: FakeServer, client: Client
) -> None:
    Path(f"mine.pt.{SHA256[:12]}.part").write_bytes(b"other bytes")
    serve_checkpoint(server, DATA)
    assert client.download("job_1", to="mine.pt").read_bytes() == DATA


def test_kept_bytes_that_are_wrong_are_found_and_removed(server: FakeServer, client: Client) -> None:
    Path(f"mine.pt.{SHA256[:12]}.part").write_bytes(b"other byte")
    rest = {"Content-Range": f"bytes 10-{len(DATA) - 1}/{len(DATA)}"}
    serve_checkpoint(server, DATA[10:], rest, status=206)
    with pytest.raises(ServerError, match="is listed as"):
        client.download("job_1", to="mine.pt")
    assert [*Path.cwd().iterdir()] == []


def test_two_downloads_of_the_same_do_not_mix(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    with Path(f"mine.pt.{SHA256[:12]}.part").open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="another download"):
            client.download("job_1", to="mine.pt")
    assert client.download("job_1", to="mine.pt").read_bytes() == DATA


def test_a_disk_that_takes_no_more_is_named_with_what_is_kept(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    code = (
        "import resource, signal, sys; from torchyard.client import Client\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))\n"
        "Client(*sys.argv[1:]).download('job_1', to='mine.pt')"
    )
    done = subprocess.run([sys.executable, "-c", code, server.url, TOKEN], capture_output=True, text=True, check=False)
    assert f"5000 of {len(DATA)} bytes are kept" in done.stderr.splitlines()[-1]
    [part] = Path.cwd().iterdir()
    assert part.read_bytes() == DATA[:5000]


def test_a_download_that_the_disk_has_no_room_for_is_not_begun(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    listed = client.checkpoint("job_1").model_dump(mode="json")
    server.on(f"{JOB}/checkpoints/best", {**listed, "size": 2**60})
    with pytest.raises(OSError, match=f"{2**60} bytes are missing and the disk has"):
        client.download("job_1", to="mine.pt")
    assert [*Path.cwd().iterdir()] == []
    assert not any(asked.path.endswith("/download") for asked in server.asked)


def test_any_file_of_a_checkpoint_can_be_fetched(server: FakeServer, client: Client) -> None:
    serve_checkpoint(server, DATA)
    server.on(f"{JOB}/checkpoints/ckpt_1/files/state.pt", Answer(DATA))
    assert client.download("job_1", file="state.pt", to="mine.pt").read_bytes() == DATA
    for to in ("mine.pt", "."):
        with pytest.raises(NotFound, match=r"it has state\.pt"):
            client.download("job_1", file="other", to=to)


def test_a_server_cannot_choose_the_folder_of_a_download(server: FakeServer, client: Client, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA, {"Content-Disposition": 'attachment; filename="../evil.pt"'})
    assert client.download("job_1", to=tmp_path) == tmp_path / "ckpt_1.pt"


def test_a_stream_that_is_cut_goes_on_where_it_was(server: FakeServer, client: Client) -> None:
    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "queued")), ("metric", 2, point("loss", 1, "NaN"))),
        Answer(status=0),
        problem("unavailable", 503),
        sse(("log", 4, line(1)), ("news", 5, {})),
        sse(("checkpoint", 6, {**event(6, "x"), "type": "checkpoint"}), ("end", 6, {"state": "failed"})),
    )
    items = [*client.stream("job_1", only=["state", "log"])]
    assert [(item.position, item.kind) for item in items] == [
        *((1, "state"), (2, "metric"), (4, "log"), (6, "checkpoint"), (6, "end"))
    ]
    assert isinstance(items[1].view, MetricPoint) and math.isnan(items[1].view.point.value)
    assert items[-1].view == End(state=JobState.FAILED)
    assert [asked.headers.get("Last-Event-ID") for asked in server.asked] == [None, "2", "2", "2", "4"]
    assert {tuple(asked.query["only"]) for asked in server.asked} == {("state", "log")}


def test_a_stream_gives_up_on_a_server_that_stays_away(server: FakeServer) -> None:
    server.on(f"{JOB}/stream", sse(("log", 1, line(1))), Answer(status=0))
    with Client(server.url, TOKEN, patience=0.3) as client:
        items = client.stream("job_1", after=7)
        assert next(items).position == 1
        with pytest.raises(ServerUnreachable):
            next(items)
    assert server.asked[0].headers["Last-Event-ID"] == "7"


@pytest.mark.parametrize("answer", [problem("not_found", 404), sse(("log", 1, {"text": "x"}))])
def test_a_stream_of_something_else_is_an_error(server: FakeServer, client: Client, answer: Answer) -> None:
    server.on(f"{JOB}/stream", answer)
    with pytest.raises((NotFound, ServerError)):
        next(client.stream("job_1"))
    assert len(server.asked) == 1


def test_the_rest_of_the_interface_is_called_as_documented(server: FakeServer, client: Client) -> None:
    server.on("/v1/jobs/validate", {"spec": {"trainer": "image-classification"}})
    assert client.validate({"trainer": "image-classification"}).name == "image-classification"
    server.on(f"{JOB}/retry", Answer(job(id="job_2", retry_of="job_1"), 201))
    assert client.retry("job_1").retry_of == "job_1"
    assert server.asked[-1].headers["Idempotency-Key"]
    server.on(JOB, job(name="b"))
    assert client.update("job_1", name="b", labels={}).name == "b"
    assert (server.asked[-1].method, json.loads(server.asked[-1].body)) == ("PATCH", {"name": "b", "labels": {}})
    server.on(JOB, Answer(b"", 204))
    client.delete("job_1")
    assert server.asked[-1].method == "DELETE"
    waits = {"code": "no_devices", "message": "needs 8", "since": NOW}
    entry = {"position": 1, "job_id": "job_1", "name": "a", "owner": "me", "priority": 0, "resources": {}}
    server.on("/v1/queue", page([{**entry, "reason": waits, "created_at": NOW}]))
    assert [entry.reason.message for entry in client.queue()] == ["needs 8"]
    server.on("/v1/jobs", page([]))
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert [*client.list(labels={"team": "a:b"}, created_after=moment, owner="me")] == []
    asked = server.asked[-1].query
    assert (asked["label"], datetime.fromisoformat(asked["created_after"][0])) == (["team:a:b"], moment)


def test_the_line_at_a_moment_is_found_in_a_few_steps(server: FakeServer, client: Client) -> None:
    server.on(f"{JOB}/logs", page([]))
    assert client.lines_before("job_1", datetime.now(UTC)) == 0
    server.on(f"{JOB}/logs", page([line(1)]))
    assert client.lines_before("job_1", datetime(2026, 1, 1, tzinfo=UTC)) == 0
    assert client.lines_before("job_1", datetime.now(UTC)) == 1


def test_follow_yields_everything_once_and_ends_with_the_job(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="running", attempt=1), job(state="succeeded", attempt=1))
    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "running")), ("log", 2, line(1)), ("metric", 3, point("loss", 1))),
        sse(("log", 4, line(2)), ("state", 5, event(5, "succeeded")), ("end", 5, {"state": "succeeded"})),
    )
    found = [_label(update) for update in client.follow("job_1")]
    assert found == ["running", "event 1", "line 1", "loss@1", "line 2", "event 5", "succeeded"]
    assert [*client.follow("job_1", logs=False, metrics=False)]
    assert {"log", "metric"}.isdisjoint(server.asked[-2].query["only"])


def test_following_a_log_leaves_out_what_was_seen_and_other_ranks(server: FakeServer, client: Client) -> None:
    lines = [("log", 10 * number, {**line(number), "rank": number % 2}) for number in range(1, 7)]
    server.on(f"{JOB}/stream", sse(*lines, ("end", 60, {"state": "succeeded"})))
    assert [found.line for found in client.follow_logs("job_1", after=2, rank=1)] == [3, 5]
    assert server.asked[0].headers["Last-Event-ID"] == "2"


def test_wait_gives_the_ended_job_or_times_out(server: FakeServer, client: Client) -> None:
    server.on(JOB, job(state="running", version=3), job(state="failed"))
    assert client.wait("job_1").state == JobState.FAILED
    assert [asked.query for asked in server.asked] == [{}, {"wait": ["20"], "after_version": ["3"]}]
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


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://[::", "http://x:99999", "http://"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(ConfigError, match=r"http://HOST:PORT"):
        Client(url, TOKEN)


@pytest.mark.parametrize("token", ["wörng", "a\nb"])
def test_what_can_be_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(NotAuthorized, match="characters that no token has"):
        Client("http://127.0.0.1:1", token)


def test_a_checkpoint_named_as_the_parent_folder_is_no_other_call(server: FakeServer, client: Client) -> None:
    server.on(JOB, job())
    with pytest.raises(NotFound):
        client.checkpoint("job_1", "..")


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
