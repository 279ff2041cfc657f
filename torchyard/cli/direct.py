"""Asks a server by plain HTTP with the standard library, which loads in a fifth of the time of the client's."""

from http.client import HTTPConnection, HTTPException
from typing import Protocol
from urllib.parse import urlsplit

from torchyard.client.discovery import Server
from torchyard.client.problems import Answer, no_answer
from torchyard.contract.errors import ServerError

MOST_BYTES = 256 << 20
"""Of one answer. A page of 1,000 lines of output has less."""
_CONNECT_S, _READ_S = 5.0, 30.0
"""The client's, too."""


class Transport(Protocol):
    """Sends requests to one server."""

    def __init__(self, server: Server) -> None: ...

    def get(self, path: str) -> Answer:
        """Returns what the server answers, also if it is no success. Raises ServerUnreachable."""
        ...

    def close(self) -> None: ...


class Direct:
    """Keeps one connection, which the next request uses, too."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._url = urlsplit(server.url)
        self._headers = {"Authorization": f"Bearer {server.token}", "User-Agent": "torchyard"}
        self._connection: HTTPConnection | None = None

    def get(self, path: str) -> Answer:
        path = f"{self._url.path}{path}"
        try:
            self._connection = connection = self._connection or self._connected()
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
        except (OSError, HTTPException) as error:
            self.close()
            in_time = not isinstance(error, TimeoutError)
            raise no_answer(self._server, str(error) or type(error).__name__, in_time=in_time) from error
        address = f"{self._url.scheme}://{self._url.netloc}"
        if len(body) > MOST_BYTES:
            raise ServerError(f"{address}{path} answered more than {MOST_BYTES} bytes")
        headers = {name.lower(): text for name, text in response.headers.items()}
        return Answer("GET", address, path, response.status, headers, body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> HTTPConnection:
        connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=_CONNECT_S)
        connection.connect()
        connection.sock.settimeout(_READ_S)
        return connection
