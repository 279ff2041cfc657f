"""A real HTTP server that gives the answers that a test sets, and records the requests.

Answers are validated against the API's OpenAPI document: the client is not tested with what no server answers.
"""

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import threading
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from tests.torchyard.client.documented import refusal

TOKEN = "the-token"


@dataclass(frozen=True)
class Answer:
    """`body` is sent as JSON unless it is bytes; a `status` of 0 closes the connection instead.

    `undocumented`: it is what the API does not answer, on purpose.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    undocumented: bool = False


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class FakeServer(ThreadingHTTPServer):
    """Requests for a path get its answers in order; the last one is repeated."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, deque[Answer]] = {}
        self.requests: list[Request] = []
        self.undocumented: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def on(self, path: str, *answers: Answer | Any) -> None:
        self.answers[path] = deque(item if isinstance(item, Answer) else Answer(item) for item in answers)


@contextmanager
def serving() -> Generator[FakeServer]:
    with FakeServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    assert not server.undocumented, "\n".join(server.undocumented)


def problem(code: str, status: int, **more: Any) -> Answer:
    body = {"type": "about:blank", "title": "A title", "status": status, "detail": "What happened", "code": code}
    return Answer({**body, "request_id": "req-7", **more}, status, {"Content-Type": "application/problem+json"})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast(FakeServer, self.server)
        target = urlsplit(self.path)
        body = self._body()
        server.requests.append(Request(self.command, target.path, parse_qs(target.query), dict(self.headers), body))
        waiting = server.answers.get(target.path) or deque([problem("not_found", 404)])
        answer = waiting.popleft() if len(waiting) > 1 else waiting[0]
        if answer.status == 0:
            self.close_connection = True
            return
        if not answer.undocumented and not isinstance(answer.body, bytes):
            wrong = refusal(self.command, target.path, answer.status, answer.body)
            server.undocumented += [wrong] if wrong is not None else []
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Writes no log."""
