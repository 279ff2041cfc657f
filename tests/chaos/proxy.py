"""A TCP port in front of a server. Its connections can be delayed, held and reset."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
import socket
import struct
import threading
import time

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing discards unsent bytes and sends a reset


class Proxy:
    """Listens on `host` until `close`. `upstream`: the server's unix socket, or its port of 127.0.0.1.

    `latency` is in seconds, for each piece in either direction.
    """

    def __init__(self, upstream: Path | int, *, host: str = "127.0.0.1") -> None:
        self.latency = 0.0
        self._upstream = upstream
        self._passing = threading.Event()
        self._passing.set()
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server((host, 0), backlog=128)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def hold(self) -> None:
        """Simulates a partition: connections stay and new ones are accepted, but no byte passes until `heal`."""
        self._passing.clear()

    def heal(self) -> None:
        """Forwards held bytes, without latency."""
        self.latency = 0.0
        self._passing.set()

    def cut(self) -> int:
        """Resets every connection and returns their number."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
        return len(pairs)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._connect, args=(client,), name="proxy", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._passing.wait()
        is_local = isinstance(self._upstream, Path)
        server = socket.socket(socket.AF_UNIX if is_local else socket.AF_INET)
        pair = _Pair(client, server)
        try:
            server.connect(str(self._upstream) if is_local else ("127.0.0.1", self._upstream))
        except OSError:
            pair.reset()
            pair.close()
            return
        with self._lock:
            self._pairs.add(pair)
        back = threading.Thread(target=self._pump, args=(server, client, pair), name="proxy", daemon=True)
        back.start()
        self._pump(client, server, pair)
        back.join()
        with self._lock:
            self._pairs.discard(pair)
        pair.close()

    def _pump(self, source: socket.socket, target: socket.socket, pair: "_Pair") -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.latency:
                    time.sleep(self.latency)
                self._passing.wait()
                target.sendall(data)
        pair.end()


class _Pair:
    """The two sockets of one connection. Their last user closes them, so that no descriptor is reused too early."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server

    def reset(self) -> None:
        with suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._client.shutdown(socket.SHUT_RD)  # wakes the reader; SHUT_WR would send an orderly end
        self._end_server()

    def end(self) -> None:
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RD)
        self._end_server()

    def close(self) -> None:
        self._client.close()
        self._server.close()

    def _end_server(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(upstream: Path | int, *, host: str = "127.0.0.1") -> Generator[Proxy]:
    made = Proxy(upstream, host=host)
    try:
        yield made
    finally:
        made.close()
