"""A proxy of HTTP that makes tunnels (CONNECT), as those of companies do."""

from collections.abc import Generator
import contextlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import socket
import threading
from typing import Any


@contextmanager
def tunnel(port: int) -> Generator[tuple[int, list[tuple[str, str | None]]]]:
    """A proxy that answers CONNECT, and sends all to `port`. Yields its own port, and what it was asked by whom."""
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append((self.requestline, self.headers["Proxy-Authorization"]))
            with socket.create_connection(("127.0.0.1", port)) as service:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_copy, args=(service, self.connection))
                back.start()
                _copy(self.connection, service)
                back.join()
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1], asked
        server.shutdown()
        thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
