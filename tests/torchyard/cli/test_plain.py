"""What `ps`, `show` and `logs` read with: it answers as the client does, and refuses what the client refuses."""

from collections.abc import Callable
import dataclasses
from pathlib import Path

import pytest

from tests.controller.notifications.certificates import certificate
from tests.torchyard.cli.answered import is_clean_error, run
from tests.torchyard.client.answers import JOB, job, line, log_page, page
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem, serving
from torchyard.cli import answers, direct
from torchyard.cli.plain import Reader
from torchyard.client import Client
from torchyard.contract.errors import ServerError, TorchyardError
from torchyard.contract.files.views import CheckpointFile, CheckpointView, RemeasuredView
from torchyard.contract.jobs.views import (
    AfterView,
    BestView,
    ErrorView,
    HeldDevice,
    InitialView,
    JobSummary,
    JobView,
    ProgressView,
    StatusReason,
)
from torchyard.contract.queue.views import EstimateView
from torchyard.contract.team.views import MeView
from torchyard.contract.telemetry.views import LogLine
from torchyard.contract.wire.codec import Record
from torchyard.contract.wire.view import View

ANSWERS: dict[str, Answer] = {
    "a problem": problem("forbidden", 403),
    "a problem of fields": problem("invalid_request", 422, errors=[{"field": "q", "message": "is too long"}]),
    "a code of a newer server": problem("not_known_here", 409),
    "no problem": Answer(b"<html>", 500, {"Content-Type": "text/html"}, undocumented=True),
    "a call that an older server lacks": Answer(
        problem("unknown_route", 404).body, 404, {"Torchyard-Version": "0.0.9"}, undocumented=True
    ),
}


VIEWS: dict[type[Record], type[View]] = {
    answers.Me: MeView,
    answers.Estimate: EstimateView,
    answers.StatusReason: StatusReason,
    answers.Progress: ProgressView,
    answers.Best: BestView,
    answers.Failure: ErrorView,
    answers.Summary: JobSummary,
    answers.Job: JobView,
    answers.Initial: InitialView,
    answers.After: AfterView,
    answers.Held: HeldDevice,
    answers.File: CheckpointFile,
    answers.Remeasured: RemeasuredView,
    answers.Checkpoint: CheckpointView,
    answers.Line: LogLine,
}


@pytest.mark.parametrize("record", VIEWS, ids=lambda record: record.__name__)
def test_what_is_read_of_an_answer_is_in_its_view(record: type[Record]) -> None:
    """A field may be missing where it may be missing in its view."""
    view = VIEWS[record].model_fields
    read = {field.name: field for field in dataclasses.fields(record)}
    assert read.keys() <= view.keys()
    for name, field in read.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        assert has_default or view[name].is_required(), name


@pytest.fixture
def reader(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Reader]:
    def made() -> Reader:
        return Reader(patience=0)

    monkeypatch.setenv("TORCHYARD_URL", server.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", TOKEN)
    return made


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.filterwarnings("ignore:this client is Torchyard")
def test_an_answer_that_is_no_success_is_the_error_of_the_client(
    server: FakeServer, reader: Callable[[], Reader], answer: Answer
) -> None:
    server.on("/v1/me", answer)
    with reader() as plain, pytest.raises(TorchyardError) as own:
        plain.own_name()
    with Client(server.url, TOKEN, patience=0) as client, pytest.raises(TorchyardError) as theirs:
        client.me()
    assert (type(own.value), own.value.message) == (type(theirs.value), theirs.value.message)
    assert own.value.errors == theirs.value.errors


def test_a_refusal_that_passes_is_waited_for(server: FakeServer) -> None:
    busy = Answer(b"<html>", 503, {"Retry-After": "0"}, undocumented=True)
    server.on(JOB, busy, job())
    server.on(f"{JOB}/logs", busy, log_page([line(1)]))
    assert run(server, "logs", "job_1").stdout == "rank 0 | text 1\n"


def test_a_body_of_another_shape_is_refused(server: FakeServer) -> None:
    server.on(JOB, Answer({**job(), "progress": {"step": "many"}}, undocumented=True))
    done = run(server, "show", "job_1")
    assert is_clean_error(done)
    assert "(progress: step: must be a whole number): is it a Torchyard server of this version?" in done.stderr


def test_an_answer_has_a_greatest_size(
    server: FakeServer, reader: Callable[[], Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "MOST_BYTES", 10)
    with reader() as plain, pytest.raises(ServerError, match="more than 10 bytes"):
        plain.own_name()


def test_a_server_of_another_version_is_named_once(server: FakeServer, reader: Callable[[], Reader]) -> None:
    server.on(JOB, Answer(job(), headers={"Torchyard-Version": "7.3.1"}))
    with reader() as plain, pytest.warns(UserWarning, match=r"is 7\.3\.1: some calls may fail") as told:
        plain.job("job_1")
        plain.job("job_1")
    assert len(told) == 1


def test_all_pages_are_read_up_to_the_limit(server: FakeServer, reader: Callable[[], Reader]) -> None:
    first, last = (
        page([job(id="job_1"), job(id="job_2")], more=True, next="c"),
        page([job(id="job_3"), job(id="job_4")]),
    )
    server.on("/v1/jobs", first, last)
    with reader() as plain:
        found = plain.jobs({"state": ["queued", "running"], "starred": True}, limit=3)
    assert [each.id for each in found] == ["job_1", "job_2", "job_3"]
    asked = [each.query for each in server.requests]
    assert asked[0] == {"state": ["queued", "running"], "starred": ["true"], "limit": ["3"]}
    assert asked[1] == {**asked[0], "after": ["c"]}


def test_a_filter_that_the_client_refuses_is_refused(server: FakeServer) -> None:
    done = run(server, "ps", "--name", "a" * 201)
    assert is_clean_error(done)
    assert done.stderr == "error: the request is not valid\n"
    assert not any(each.path == "/v1/jobs" for each in server.requests)


@pytest.mark.parametrize("ref", ["job_\udcff", "\udcff", "job_" + "a" * 300])
def test_a_name_that_no_job_has_is_a_plain_error(server: FakeServer, ref: str) -> None:
    server.on(f"/v1/jobs/{ref}", problem("not_found", 404))
    assert is_clean_error(run(server, "show", ref))


def test_a_server_behind_tls_is_trusted_by_its_authority_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, context = certificate(tmp_path, "localhost")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with serving() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
        monkeypatch.setenv("TORCHYARD_URL", f"https://localhost:{server.server_port}")
        monkeypatch.setenv("TORCHYARD_TOKEN", TOKEN)
        with Reader(patience=0) as plain, pytest.raises(TorchyardError, match="certificate"):
            plain.own_name()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        with Reader(patience=0) as plain:
            assert plain.own_name() == "admin"


def test_a_proxy_that_a_variable_names_is_used(
    server: FakeServer, reader: Callable[[], Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_URL", "http://torchyard.invalid")
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with reader() as plain:
        assert plain.own_name() == "admin"
    assert len(server.requests) == 1
