"""Clients that repeat one prepared request, each over its own connection, in their own process.

`python -m bench.load HOST PORT CLIENTS SECONDS < REQUEST` prints one JSON object: the latencies and statuses of all
answers, and the CPU time of this process.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
import json
import socket
import subprocess
import sys
import threading
import time


@dataclass(frozen=True)
class Load:
    """The results of all clients."""

    seconds: float
    latencies_ms: list[float]
    statuses: dict[str, int]
    cpu_s: float
    """Processor time of the clients' process."""

    @property
    def rate(self) -> float:
        """The number of answers a second."""
        return len(self.latencies_ms) / self.seconds


def drive(address: tuple[str, int], request: bytes, *, clients: int, seconds: float) -> Load:
    """Runs `clients` that repeat `request` in another process. Exits if an answer's status is not 2xx."""
    command = [sys.executable, "-m", "bench.load", address[0], str(address[1]), str(clients), str(seconds)]
    answer = subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True).stdout
    load = Load(**json.loads(answer))
    if any(not status.startswith("2") for status in load.statuses):
        sys.exit(f"the requests were answered {load.statuses}")
    return load


def post(path: str, body: object, *, token: str = "") -> bytes:
    """Returns a complete JSON request."""
    content = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    head += [f"Authorization: Bearer {token}", f"Content-Length: {len(content)}", "", ""]
    return "\r\n".join(head).encode() + content


def get(path: str, *, token: str = "", headers: Sequence[str] = ()) -> bytes:
    head = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *headers, "", ""]
    return "\r\n".join(head).encode()


def exchange(connection: socket.socket, request: bytes) -> tuple[str, bytes]:
    """Sends one request, and returns the status and the body of its answer, which must have a Content-Length."""
    connection.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    parts = [body]
    left = length - len(body)
    while left:
        parts.append(_some(connection))
        left -= len(parts[-1])
    return lines[0].split()[1], b"".join(parts)


def _some(connection: socket.socket) -> bytes:
    received = connection.recv(1 << 18)
    if not received:
        raise ConnectionError("the server closed the connection")
    return received


def _client(address: tuple[str, int], request: bytes, until: float, seen: list[tuple[float, str]]) -> None:
    with socket.create_connection(address, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (sent := time.perf_counter()) < until:
            status, _ = exchange(connection, request)
            seen.append(((time.perf_counter() - sent) * 1e3, status))


def _main() -> None:
    host, port, clients, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    request = sys.stdin.buffer.read()
    seen: list[tuple[float, str]] = []
    began = time.perf_counter()
    threads = [
        threading.Thread(target=_client, args=((host, port), request, began + seconds, seen)) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = {status: sum(1 for _, other in seen if other == status) for status in {status for _, status in seen}}
    load = Load(time.perf_counter() - began, [latency for latency, _ in seen], statuses, time.process_time())
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    _main()
