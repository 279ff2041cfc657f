"""A TestClient that has the app answer each request in one turn of its loop, but for streams: TestClient takes nine.

Each turn wakes another thread, which takes as long as most routes.
"""

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

from anyio import Event
import httpx2
from starlette.testclient import TestClient

Message = MutableMapping[str, Any]


class WholeAnswers(TestClient):
    """Streams are read as TestClient reads them."""

    __test__ = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._transport = _Transport(self._transport)

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        request.extensions = {**request.extensions, "streamed": stream}
        return super().send(request, stream=stream, **options)


class _Transport(httpx2.BaseTransport):
    def __init__(self, streaming: Any) -> None:
        self._streaming = streaming

    def close(self) -> None:
        self._streaming.close()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.extensions["streamed"] or request.url.scheme not in {"http", "https"}:
            return self._streaming.handle_request(request)
        with self._streaming.portal_factory() as portal:
            start, *rest = portal.call(_answer, self._streaming.app, self._scope(request), request.read())
        body = b"" if request.method == "HEAD" else b"".join(message.get("body", b"") for message in rest)
        headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
        return httpx2.Response(start["status"], headers=headers, stream=httpx2.ByteStream(body), request=request)

    def _scope(self, request: httpx2.Request) -> dict[str, Any]:
        port = request.url.port or {"http": 80, "https": 443}[request.url.scheme]
        return {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(request.url.path),
            "raw_path": request.url.raw_path.split(b"?", 1)[0],
            "root_path": self._streaming.root_path,
            "scheme": request.url.scheme,
            "query_string": request.url.query,
            "headers": [(name.lower().encode(), value.encode()) for name, value in request.headers.multi_items()],
            "client": self._streaming.client,
            "server": [request.url.host, port],
            "extensions": {},
            "state": self._streaming.app_state.copy(),
        }


async def _answer(app: Any, scope: dict[str, Any], body: bytes) -> list[Message]:
    """Returns what the app has sent."""
    sent: list[Message] = []
    left, ended = [body], Event()

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop()}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            ended.set()

    await app(scope, receive, send)
    assert sent, "the app has not answered"
    return sent
