"""The worker's end of reaches, with a service that answers over real connections. What runs is a socket of the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
import socket
import threading
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from websockets.sync.server import ServerConnection, serve

from store.attempts import read
from store.attempts.facts import Claim
from store.db.database import Database
from tests.api.raw import wait_until
from tests.api.reach_ends import DEADLINE_S, await_other, code_of_close, open_socket, send_proof
from tests.api.service import ApiFixture
from tests.api.serving import api_thread
from tests.tunnels import tunnel
from torchyard.contract.errors import ConfigError
from torchyard.contract.reach.frames import Frame, FrameReader, Kind
from torchyard.contract.reach.orders import Call
from torchyard.contract.reach.proof import new_nonce
from torchyard.host import tls, trust
from worker.engines.base import Engine, Handle
from worker.host.attempt_key import AttemptKey
from worker.reaches.meeting import ServiceAddress
from worker.reaches.reaches import Reaches


class Entrance:
    """The one method of an engine that reaches need. Keeps the other ends of the sockets that it has given."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.inside: list[socket.socket] = []
        self.refuses: Exception | None = None

    def reach(self, handle: Handle, call: Call) -> socket.socket:
        self.calls.append(call)
        if self.refuses is not None:
            raise self.refuses
        given, kept = socket.socketpair()
        kept.settimeout(DEADLINE_S)
        self.inside.append(kept)
        return given


class Box:
    """A worker with one attempt."""

    def __init__(self, service: ApiFixture, address: ServiceAddress) -> None:
        self.claim: Claim = service.start(service.submit()["id"])
        self.entrance = Entrance()
        self.reaches = Reaches(cast("Engine", self.entrance), address)
        self.reaches.follow(Handle(AttemptKey(self.claim.job_id, 1), 1))
        self._service = service

    def open(self, **body: Any) -> dict[str, Any]:
        wanted = body or {"kind": "program", "argv": ["cat"]}
        answer = self._service.client.post(f"/v1/jobs/{self.claim.job_id}/reaches", json=wanted)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def look(self) -> None:
        """Reads what is wanted, as a turn of the runner does, and begins with it."""
        with self._service.database.read() as session:
            self.reaches.carry_out(read.read_wanted(session, self.claim).reaches)


@pytest.fixture(params=["http", "https"])
def address(
    request: pytest.FixtureRequest, service: ApiFixture, tmp_path: Path, database: Database, redis_url: str
) -> Iterator[ServiceAddress]:
    secured = request.param == "https"
    at = database.engine.url.render_as_string(hide_password=False)
    with api_thread(tmp_path, at, redis_url, tls=secured) as url:
        yield ServiceAddress(url, lambda: trust.context(tls.own(tmp_path).text()))


@pytest.fixture
def box(service: ApiFixture, address: ServiceAddress) -> Iterator[Box]:
    made = Box(service, address)
    yield made
    made.reaches.close()
    for inside in made.entrance.inside:
        inside.close()


@pytest.fixture
def connect(address: ServiceAddress) -> Callable[[dict[str, Any]], Any]:
    secured = {"ssl": address.context()} if address.url.startswith("https") else {}
    return lambda opened: open_socket(address.url, opened, "client", **secured)


def test_bytes_pass_between_a_client_and_what_the_engine_has_started(
    service: ApiFixture, box: Box, connect: Callable[[dict[str, Any]], Any]
) -> None:
    opened = box.open()
    box.look()
    box.look()
    with connect(opened) as client:
        await_other(client, opened, send_proof(client, opened, "client"))
        client.send(b"to the job")
        wait_until(lambda: box.entrance.inside != [])
        (inside,) = box.entrance.inside
        assert inside.recv(100) == b"to the job"
        inside.sendall(b"from the job")
        inside.close()
        assert client.recv(timeout=DEADLINE_S) == b"from the job"
        assert code_of_close(client) == 1000
    (call,) = box.entrance.calls
    assert (call.kind, call.reach, call.order and call.order.argv) == ("start", opened["id"], ["cat"])
    wait_until(lambda: service.get(f"/v1/jobs/{box.claim.job_id}/reaches")["data"] == [])


@pytest.mark.parametrize("address", ["https"], indirect=True)
def test_a_worker_comes_by_the_proxy_that_its_environment_names(
    service: ApiFixture,
    address: ServiceAddress,
    connect: Callable[[dict[str, Any]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tunnel(urlsplit(address.url).port or 0) as (port, asked):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        box = Box(service, ServiceAddress("https://192.0.2.1:8443", address.context))  # nobody has this address
        opened = box.open()
        box.look()
        with connect(opened) as client:
            await_other(client, opened, send_proof(client, opened, "client"))
            wait_until(lambda: box.entrance.inside != [])
            box.entrance.inside[0].sendall(b"from the job")
            assert client.recv(timeout=DEADLINE_S) == b"from the job"
            box.entrance.inside[0].close()
        box.reaches.close()
    assert [line.split()[1] for line, _ in asked] == ["192.0.2.1:8443"]


@pytest.mark.parametrize("address", ["http"], indirect=True)
@pytest.mark.parametrize(
    ("error", "said"), [(OSError(111, "not there"), "not there"), (ConfigError("it cannot"), "it cannot")]
)
def test_the_client_is_told_why_the_engine_starts_nothing(
    box: Box, connect: Callable[[dict[str, Any]], Any], error: OSError | ConfigError, said: str
) -> None:
    box.entrance.refuses, opened = error, box.open()
    box.look()
    with connect(opened) as client:
        await_other(client, opened, send_proof(client, opened, "client"))
        (frame,) = FrameReader().feed(client.recv(timeout=DEADLINE_S))
        assert frame.kind is Kind.ERROR
        assert said in frame.content.decode()
        assert code_of_close(client) == 1000


@pytest.mark.parametrize("address", ["http"], indirect=True)
def test_a_worker_that_leaves_cuts_the_connection_and_the_next_one_is_told_to_join(
    service: ApiFixture, box: Box, connect: Callable[[dict[str, Any]], Any]
) -> None:
    opened = box.open()
    box.look()
    with connect(opened) as client:
        await_other(client, opened, send_proof(client, opened, "client"))
        wait_until(lambda: box.entrance.inside != [])
        client.send(b"on")
        assert box.entrance.inside[0].recv(100) == b"on"
        box.reaches.close()
        assert code_of_close(client) == 1001
        assert box.entrance.inside[0].recv(100) == b"", "the handler waits for the next connection"
    assert service.client.post(f"/v1/reaches/{opened['id']}/meetings").status_code == 201
    with service.database.read() as session:
        (order,) = read.read_wanted(session, box.claim).reaches
    assert (order.kind, order.meeting) == ("join", 2)


@pytest.mark.parametrize("address", ["http"], indirect=True)
def test_what_a_user_has_ended_is_ended_in_the_sandbox_although_no_client_is_there(
    service: ApiFixture, box: Box, connect: Callable[[dict[str, Any]], Any]
) -> None:
    opened = box.open(kind="program", terminal={})
    box.look()
    with connect(opened) as client:
        await_other(client, opened, send_proof(client, opened, "client"))
        wait_until(lambda: box.entrance.inside != [])
        assert service.client.delete(f"/v1/reaches/{opened['id']}").status_code == 204
        assert code_of_close(client) == 4410
    box.look()
    wait_until(lambda: len(box.entrance.inside) == 2)
    assert box.entrance.calls[1] == Call(kind="join", reach=opened["id"])
    assert [frame.kind for frame in received(box.entrance.inside[1], 2)] == [Kind.HELLO, Kind.CLOSE]


@pytest.mark.parametrize("address", ["http"], indirect=True)
def test_nothing_is_started_for_a_program_that_listens_where_the_service_did(box: Box) -> None:
    asked = threading.Event()

    def pretend(stranger: ServerConnection) -> None:
        stranger.send(f'{{"nonce": "{new_nonce()}"}}')
        stranger.recv()
        stranger.send(f'{{"proof": "{new_nonce()}"}}')
        asked.set()
        assert list(stranger) == []

    with serve(pretend, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        elsewhere = Reaches(cast("Engine", box.entrance), ServiceAddress(f"http://127.0.0.1:{port}"))
        elsewhere.follow(Handle(AttemptKey(box.claim.job_id, 1), 1))
        box.reaches = elsewhere
        box.open()
        box.look()
        assert asked.wait(DEADLINE_S)
        server.shutdown()
        thread.join()
    assert box.entrance.calls == []


def received(inside: socket.socket, count: int) -> list[Frame]:
    """Returns the first frames that come."""
    reader, frames = FrameReader(), list[Frame]()
    while len(frames) < count:
        frames += reader.feed(inside.recv(1 << 16))
    return frames
