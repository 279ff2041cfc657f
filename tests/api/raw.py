"""Raw HTTP: sends what no client library sends, and reads as slowly as a test needs."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
import socket
import time
from urllib.parse import urlsplit

from tests.api.service import TOKEN
from tests.forked import ForkedProgram
from torchyard.contract.wire.view import Problem

_DEADLINE_S = 60


@dataclass(frozen=True)
class Answer:
    status: int
    headers: HTTPMessage
    body: bytes

    def problem(self) -> Problem:
        assert self.headers["Content-Type"] == "application/problem+json"
        found = Problem.model_validate_json(self.body)
        assert (found.status, found.request_id) == (self.status, self.headers["X-Request-ID"])
        return found


@dataclass(frozen=True)
class Served:
    """A process of the API, and the folder of its data and its log."""

    process: ForkedProgram
    url: str
    folder: Path

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        parts = urlsplit(self.url)
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(_DEADLINE_S)
        connection.connect((parts.hostname, parts.port))
        return connection

    def ask(self, raw: bytes) -> Answer:
        with self.connect() as connection:
            connection.sendall(raw)
            return read_answer(connection)

    def descriptors(self) -> int:
        return self._entries("fd")

    def holds(self, name: str) -> bool:
        """Returns whether the process has a file of that name open."""
        return any(link.endswith(name) for link in self._links())

    def threads(self) -> int:
        return self._entries("task")

    def log(self) -> str:
        return (self.folder / "api.log").read_text()

    def _links(self) -> Iterator[str]:
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                yield str(entry.readlink())

    def _entries(self, kind: str) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/{kind}").iterdir()))


def get(path: str, *headers: str, method: str = "GET", host: str = "127.0.0.1") -> bytes:
    lines = (f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {TOKEN}", *headers, "", "")
    return "\r\n".join(lines).encode()


def read_answer(connection: socket.socket, *, method: str = "GET") -> Answer:
    with HTTPResponse(connection, method=method) as response:
        response.begin()
        return Answer(response.status, response.headers, response.read())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
