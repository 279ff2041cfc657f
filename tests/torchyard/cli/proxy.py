"""A TCP proxy that breaks the connections through it."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
import socket
import threading
from urllib.parse import urlsplit


class BreakingProxy:
    """Forwards connections to `upstream`. If `limit` is set, it breaks each after that many bytes of the answer, or
    stops forwarding if `hangs` is set. `sent` counts the bytes of all answers, `broken` the broken connections.
    """

    def __init__(self, upstream: str) -> None:
        self.limit: int | None = None
        self.hangs = False
        self.sent = 0
        self.broken = 0
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "", address.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            _end(each)

    def _forward(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream)
        except OSError:
            return _end(client)
        self._open.append(server)
        threading.Thread(target=_pump, args=(client, server), daemon=True).start()
        return self._send_back(server, client)

    def _send_back(self, server: socket.socket, client: socket.socket) -> None:
        sent = 0
        with suppress(OSError):
            while data := server.recv(65536 if self.limit is None else min(65536, self.limit - sent)):
                client.sendall(data)
                sent += len(data)
                self.sent += len(data)
                if self.limit is not None and sent >= self.limit:
                    self.broken += 1
                    if self.hangs:
                        return
                    break
        _end(client)
        _end(server)


@contextmanager
def breaking_proxy(upstream: str) -> Generator[BreakingProxy]:
    proxy = BreakingProxy(upstream)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _end(target)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
