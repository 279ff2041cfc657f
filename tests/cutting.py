"""A TCP proxy whose connections end after so many bytes, in either direction, with an orderly end or a reset."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
import socket
import socketserver
import struct
import threading

import httpx2

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with which a close sends a reset."""
_CHUNK = 65_536


@dataclass(frozen=True)
class Cut:
    """After how many bytes in which direction a connection ends."""

    to_server: int | None = None
    to_client: int | None = None
    reset: bool = False


def random_cuts(random: Random, number: int, *, most: int) -> list[Cut]:
    """Returns cuts after up to `most` bytes in either direction. Every third connection ends before any answer."""

    def one(index: int) -> Cut:
        answered = random.randrange(1, most) if index % 3 else 0
        return Cut(to_server=random.randrange(1, most), to_client=answered, reset=random.random() < 0.5)

    return [one(index) for index in range(number)]


@contextmanager
def cutting_proxy(url: str, cuts: list[Cut], *, host: str = "127.0.0.1") -> Generator[str]:
    """The URL of a proxy on `host` before the server at `url`. Each connection takes the last of `cuts`.

    Later ones are whole.
    """
    target = httpx2.URL(url)

    class Handler(socketserver.BaseRequestHandler):
        request: socket.socket

        def handle(self) -> None:
            cut = cuts.pop() if cuts else Cut()
            with socket.create_connection((target.host, target.port or 80)) as server:
                back = threading.Thread(target=_copy, args=(server, self.request, cut.to_client))
                back.start()
                _copy(self.request, server, cut.to_server)
                back.join()
            if cut.reset:
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    with _Server((host, 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"{target.scheme}://{host}:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    request_queue_size = 64

    def shutdown_request(self, request: object) -> None:
        """Closes without an orderly end before it, which would make a reset impossible."""
        assert isinstance(request, socket.socket)
        request.close()


def _copy(source: socket.socket, target: socket.socket, budget: int | None) -> None:
    """Copies until `source` ends or the budget is used up. Then no more is read from either."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            part = data if budget is None else data[:budget]
            target.sendall(part)
            budget = None if budget is None else budget - len(part)
            if budget == 0:
                break
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RD)
