"""Client and server compare their versions, by both clients."""

import warnings

import pytest

from tests.torchyard.client.answers import JOB, job
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
import torchyard
from torchyard.client import Client
from torchyard.contract.errors import MethodNotAllowed, NotFound, TorchyardError, UnknownRoute

HEADER = "Torchyard-Version"


def test_a_server_of_another_version_is_named_once(server: FakeServer, client: Client) -> None:
    server.on(JOB, Answer(b"<html>", 503, {"Retry-After": "0"}), Answer(job(), headers={HEADER: "7.3.1"}))
    with pytest.warns(UserWarning, match=rf"this client is Torchyard {torchyard.__version__}.* is 7\.3\.1") as told:
        client.get("job_1")
        client.get("job_1")
    assert len(told) == 1


@pytest.mark.parametrize("version", [torchyard.__version__, f"{torchyard.__version__}.post1", "", "unknown", "7.x"])
def test_nothing_is_said_of_the_own_version_or_an_unknown_one(server: FakeServer, client: Client, version: str) -> None:
    server.on(JOB, Answer(job(), headers={HEADER: version}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client.get("job_1").id == "job_1"


@pytest.mark.parametrize("kind", [UnknownRoute, MethodNotAllowed])
@pytest.mark.parametrize(("version", "is_"), [("0.0.9", "older"), ("7.3.1", "newer")])
@pytest.mark.filterwarnings("ignore:this client is Torchyard")
def test_a_call_that_the_server_lacks_names_both_versions(
    server: FakeServer, client: Client, kind: type[TorchyardError], version: str, is_: str
) -> None:
    answer = problem(kind.code, kind.status)
    server.on(f"{JOB}/advice", Answer(answer.body, kind.status, {**answer.headers, HEADER: version}))
    with pytest.raises(kind) as caught:
        client.jobs.advice("job_1")
    said = f"Torchyard {torchyard.__version__}, as this client is, has GET {JOB}/advice, but the server at"
    assert said in caught.value.message
    assert f" is {is_}, {version}: update" in caught.value.message


@pytest.mark.filterwarnings("ignore:this client is Torchyard")
def test_an_absent_object_says_nothing_of_versions(server: FakeServer, client: Client) -> None:
    answer = problem("not_found", 404)
    server.on(f"{JOB}/advice", Answer(answer.body, 404, {**answer.headers, HEADER: "0.0.9"}))
    with pytest.raises(NotFound, match="What happened") as caught:
        client.jobs.advice("job_1")
    assert "older" not in caught.value.message
