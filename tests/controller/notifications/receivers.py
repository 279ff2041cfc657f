"""Real receivers: servers on loopback that answer as a test says."""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
import socket
import ssl
import threading

from controller.notifications.deliver import THREAD

_HEAD_S = 30.0


@dataclass
class Receiver:
    """What a server has received, and where it is."""

    port: int
    scheme: str = "http"
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])
    """Headers, by their names in lower case, and the body. The first line is the header ``."""

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"


Behaviour = Callable[[socket.socket], None]
"""What a server does once it has read a request."""


def answering(status: str = "200 OK", body: bytes = b"", *headers: str) -> Behaviour:
    """Answers and closes."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]

    def behave(connection: socket.socket) -> None:
        connection.sendall("\r\n".join(lines).encode() + body)

    return behave


def silent(connection: socket.socket) -> None:
    """Answers nothing until the client leaves."""
    connection.recv(1)


def join_senders() -> None:
    """Waits for what is on its way."""
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()


@contextmanager
def receiver(behave: Behaviour | None = None, *, tls: ssl.SSLContext | None = None) -> Generator[Receiver]:
    """Runs a server that reads each request and then behaves so: by default, it answers 200."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Receiver(listening.getsockname()[1], "https" if tls else "http")
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threads.append(threading.Thread(target=_serve, args=(connection, found, behave, tls), daemon=True))
                    threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield found
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def _serve(connection: socket.socket, found: Receiver, behave: Behaviour | None, tls: ssl.SSLContext | None) -> None:
    with closing(connection), suppress(OSError):
        connection.settimeout(_HEAD_S)
        used = tls.wrap_socket(connection, server_side=True) if tls else connection
        with closing(used):
            if request := _request(used):
                found.requests.append(request)
                (behave or answering())(used)


def _request(connection: socket.socket) -> tuple[dict[str, str], bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(65536)):
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {"": first, **{name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return headers, body
