"""Asks a server as the client does: by TLS, and through the proxies that the user's variables name."""

import httpx2

from torchyard.cli.direct import MOST_BYTES
from torchyard.client.discovery import Server
from torchyard.client.problems import Answer
from torchyard.client.transport import answer_of, http_options, unreachable
from torchyard.contract.errors import ServerError


class Proxied:
    """A transport on the client's HTTP library."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._http = httpx2.Client(**http_options(server))

    def get(self, path: str) -> Answer:
        try:
            with self._http.stream("GET", path) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise ServerError(f"{response.url} answered more than {MOST_BYTES} bytes")
        except httpx2.TransportError as error:
            raise unreachable(self._server, error) from error
        return answer_of(response, bytes(body))

    def close(self) -> None:
        self._http.close()
