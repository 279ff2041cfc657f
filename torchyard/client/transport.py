"""What the client's core needs of an HTTP client. The core itself does no I/O, and never waits by itself."""

from collections.abc import AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import httpx2

from torchyard.client.discovery import Server
from torchyard.client.problems import Answer, no_answer
from torchyard.contract.errors import ServerUnreachable
from torchyard.host import trust

_TIMEOUT = httpx2.Timeout(30, connect=5)


class StreamedResponse(Protocol):
    """A response whose head has arrived and whose body has not been read."""

    @property
    def response(self) -> httpx2.Response: ...

    async def read(self) -> None:
        """Reads the whole body into `response.content`."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives."""
        ...

    def events(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        """Yields the body's server-sent events as they arrive."""
        ...


class Transport(Protocol):
    """Sends requests to one server. Every method raises httpx2.TransportError if there is no response."""

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response: ...

    async def upload(self, path: str, body: Generator[bytes], **options: Any) -> httpx2.Response:
        """Sends PUT with the body as it is made."""
        ...

    def stream(self, path: str, **options: Any) -> AbstractAsyncContextManager[StreamedResponse]: ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


def http_options(server: Server) -> dict[str, Any]:
    """Returns the arguments with which an HTTP client for the server is made."""
    return {
        "base_url": server.url,
        "headers": {"Authorization": f"Bearer {server.token}", "User-Agent": "torchyard"},
        "timeout": _TIMEOUT,
        # A proxy cannot reach this machine's loopback, and a plain connection needs no certificates.
        "trust_env": not trust.is_local(server.url),
        "verify": trust.context(server.certificate) if server.url.startswith("https:") else False,
    }


def answer_of(response: httpx2.Response, body: bytes) -> Answer:
    """Returns what the response says."""
    request, address = response.request, address_of(response)
    path = str(request.url).removeprefix(address)
    return Answer(request.method, address, path, response.status_code, response.headers, body)


def unreachable(server: Server, error: httpx2.TransportError) -> ServerUnreachable:
    """Returns the error for a request without a response."""
    detail = str(error) or type(error).__name__
    return no_answer(server, detail, in_time=not isinstance(error, httpx2.TimeoutException))


def address_of(response: httpx2.Response) -> str:
    """Returns the server's address, as `http://HOST:PORT`."""
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode()}"
