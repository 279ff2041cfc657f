"""The other side of a reach for tests: the calls that open it, its WebSocket, and behind it a real door."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import os
import socket
import threading
from typing import Any, cast

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.sync.server import Server, ServerConnection

from tests import forks
from tests.torchyard.client.answers import NOW, job
from tests.torchyard.client.fake_server import problem
from torchyard.contract.reach.orders import Call, Order
from torchyard.contract.reach.proof import new_nonce, prove, proves
from worker.sandbox.door.door import Door, Place

_AT_ONCE = 1 << 18

forks.preload(__name__)


@dataclass
class _Reach:
    order: Order | None
    """What the first connection starts."""
    meeting: int = 0
    secret: bytes = b""


class Peer(ThreadingHTTPServer):
    """Has one job, `job_1`."""

    daemon_threads = False

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._listeners = listeners
        self.websockets = Server(self.socket, lambda *_: None)
        """What a connection wants to know of its server: that it goes on."""
        self.orders: list[Order] = []
        self._reaches: dict[str, _Reach] = {}
        self.shows_secret = True
        """Whether it proves to the client that it is the service."""
        self.is_away = False
        """Whether it refuses all that comes."""
        self.nonsense = b""
        """What is sent before the handler says anything."""
        self.has_ended = False
        """Whether the job has."""
        self.ends_when_asked = False
        """Whether the job ends after the first request for its state, which answers `running`."""
        self.attempt = 1
        """That of the job which runs."""
        self._door: socket.socket | None = None
        self._ends: socket.socket | None = None
        self._connections: list[ServerConnection] = []
        self._process: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def start(self, order: Order) -> dict[str, Any]:
        """Takes an order, which is carried out once its client has come."""
        self.orders.append(order)
        reach_id = f"rch_{len(self.orders):032}"
        self._reaches[reach_id] = _Reach(order)
        return self.meet(reach_id)

    def meet(self, reach_id: str) -> dict[str, Any]:
        """Makes the next meeting."""
        reach = self._reaches[reach_id]
        reach.meeting, reach.secret = reach.meeting + 1, os.urandom(32)
        url = f"/v1/reaches/{reach_id}/stream?meeting={reach.meeting}"
        named = {"id": reach_id, "job_id": "job_1", "attempt": 1, "meeting": reach.meeting, "url": url}
        return {**named, "secret": reach.secret.hex(), "expires_at": NOW}

    def cut(self) -> None:
        """Cuts the connection of the client, as a network does: without a word."""
        for connection in self._connections:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Ends the attempt, and all that runs in it."""
        if self._door is not None and self._ends is not None:
            self._ends.close()
            self._door.close()
        if self._process is not None:
            self._process.join()

    def carry(self, connection: ServerConnection, reach_id: str) -> None:
        """Serves the client of one meeting."""
        self._connections.append(connection)
        with suppress(ConnectionClosed, OSError), connection:
            if not self._prove(connection, reach_id):
                return
            if self.nonsense:
                connection.send(self.nonsense)
            ours, theirs = socket.socketpair()
            self._join(theirs, reach_id)
            with ours:
                carrying = threading.Thread(target=_carry_up, args=(connection, ours))
                carrying.start()
                try:
                    while content := ours.recv(_AT_ONCE):
                        connection.send(content)
                finally:
                    connection.close()
                    carrying.join()

    def _join(self, connection: socket.socket, reach_id: str) -> None:
        if self._door is None:
            self._door, calls = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._ends, ends = socket.socketpair()
            self._process = forks.context.Process(target=_serve_door, args=(calls, ends, self._listeners))
            self._process.start()
            calls.close()
            ends.close()
        reach = self._reaches[reach_id]
        order, reach.order = reach.order, None
        call = Call(kind="start" if order is not None else "join", reach=reach_id, order=order)
        with connection:
            socket.send_fds(self._door, [call.to_json().encode()], [connection.fileno()])

    def _prove(self, connection: ServerConnection, reach_id: str) -> bool:
        own, reach = new_nonce(), self._reaches[reach_id]
        connection.send(json.dumps({"nonce": own}))
        said = json.loads(connection.recv())
        named: dict[str, Any] = {"reach": reach_id, "meeting": reach.meeting, "service_nonce": own}
        if not proves(said["proof"], reach.secret, side="client", **named, end_nonce=said["nonce"]):
            connection.close(4403, "the proof is wrong")
            return False
        secret = reach.secret if self.shows_secret else bytes(32)
        connection.send(json.dumps({"proof": prove(secret, side="service", **named, end_nonce=said["nonce"])}))
        return True


@contextmanager
def peer(*listeners: socket.socket) -> Generator[Peer]:
    """`listeners` are held open by a process of the job, too."""
    with Peer(listeners) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.cut()
            server.server_close()
            server.stop()
            server.websockets.shutdown_watcher.close()
            server.websockets.shutdown_notifier.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast(Peer, self.server)
        if server.is_away:
            self._answer(503, {})
        elif "Upgrade" in self.headers:
            self.close_connection = True
            server.carry(self._websocket(), self.path.split("/")[3])
        else:
            self._answer(200, job(state="succeeded" if server.has_ended else "running", attempt=server.attempt))
            server.has_ended = server.has_ended or server.ends_when_asked

    def do_POST(self) -> None:
        server = cast(Peer, self.server)
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if server.is_away:
            self._answer(503, {})
        elif server.has_ended:
            self._answer(404, problem("not_found", 404).body)
        elif self.path.endswith("/meetings"):
            self._answer(201, server.meet(self.path.split("/")[3]))
        else:
            self._answer(201, server.start(Order.from_json(sent)))

    def do_DELETE(self) -> None:
        cast(Peer, self.server).stop()
        self._answer(204, None)

    def _websocket(self) -> ServerConnection:
        protocol = ServerProtocol(max_size=None)
        head = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
        protocol.receive_data("\r\n".join(head).encode())
        (request,) = protocol.events_received()
        assert isinstance(request, Request)
        connection = ServerConnection(self.connection, protocol, cast(Peer, self.server).websockets, ping_interval=None)
        connection.process_event(request)
        connection.handshake()
        return connection

    def _answer(self, status: int, body: Any) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes no log."""


def _carry_up(connection: ServerConnection, to: socket.socket) -> None:
    with suppress(ConnectionClosed, OSError):
        for message in connection:
            assert isinstance(message, bytes)
            to.sendall(message)
    with suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)


def _serve_door(calls: socket.socket, ends: socket.socket, _: Sequence[socket.socket]) -> None:
    own = {**os.environ, "HOME": "/"}  # where no shell finds what a user has it do at its start
    place = Place(job_id="job_1", attempt=1, variables=lambda _: own, first=os.getpid())
    Door(place, calls, ends.fileno()).serve()
