"""500 watchers of one job's stream, beside one watcher: `python -m bench.watchers`.

It measures the time from a commit until the last watcher has the event, and what the watchers cost the service.
Messages are committed and announced as a worker does. The watchers are connections of another process.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
import re
import resource
import selectors
import socket
import subprocess
import sys
import time
from typing import IO

from bench import table
from bench.load import get
from bench.rest import pss_mib
from bench.service import Service, scratch, up
from bench.submit import SPEC
from bench.table import Row
from store.announcement import Announcement
from store.db.database import Database
from store.jobs import events as job_events
from store.queue.announcing import Queue, server_info
from store.service_identity import service_id
from torchyard.cli.up import redis_server
from torchyard.host.datadir import redis_url

REPEATS = 15
WATCHERS = 500
_PEER = "1 watcher"
_MESSAGE = re.compile(rb'"text": ?"([0-9]+)"')


@dataclass(frozen=True)
class Watched:
    """The latencies of a number of watchers, and their cost."""

    latencies_ms: list[float]
    redis_connections: int
    api_threads: int
    api_mib: float


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service:
        with service.client() as client:
            job_id = client.submit(SPEC).id
        alone = _watched(service, job_id, watchers=1, first=0)
        many = _watched(service, job_id, watchers=WATCHERS, first=REPEATS + 1)
    yield Row(
        f"commit to the last of {WATCHERS} watchers", "ms", many.latencies_ms, peer=_PEER, theirs=alone.latencies_ms
    )
    for what, unit, ours, theirs in (
        ("connections to Redis", "", many.redis_connections, alone.redis_connections),
        ("threads of the API", "", many.api_threads, alone.api_threads),
        ("memory of the API", "MiB", many.api_mib, alone.api_mib),
    ):
        yield Row(f"– {what} with them", unit, [ours], peer=_PEER, theirs=[theirs])


def _watched(service: Service, job_id: str, *, watchers: int, first: int) -> Watched:
    """Measures with messages that are numbered from `first`."""
    host, port = service.address
    command = [sys.executable, "-m", "bench.watchers", host, str(port), str(watchers)]
    request = get(f"/v1/jobs/{job_id}/stream", token=service.token)
    folder = service.data / "redis"
    redis = redis_url(folder, socket=redis_server.socket_in(folder))
    with (
        closing(Database(service.database)) as database,
        closing(Queue(redis, service=lambda: service_id(database))) as queue,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.close()
        _send(database, queue, job_id, first)
        _arrived(process.stdout, first)  # now every watcher is connected
        latencies: list[float] = []
        for number in range(first + 1, first + 1 + REPEATS):
            committed = _send(database, queue, job_id, number)
            latencies.append((_arrived(process.stdout, number) - committed) * 1e3)
        status = Path(f"/proc/{service.pids['api']}/status").read_text()
        found = Watched(
            latencies_ms=latencies,
            redis_connections=int(server_info(redis)["connected_clients"]) - 1,  # without this process's own
            api_threads=int(status.partition("Threads:")[2].split()[0]),
            api_mib=pss_mib(service.pids["api"]),
        )
        process.terminate()
    return found


def _send(database: Database, queue: Queue, job_id: str, number: int) -> float:
    """Stores a message of the job, and returns the time of the commit on the monotonic clock."""
    with database.write() as session:
        job_events.append(session, job_id, type="message", attempt=None, data={"level": "info", "text": str(number)})
    committed = time.monotonic()
    queue.announce(Announcement(changed={job_id}))
    return committed


def _arrived(output: IO[bytes], number: int) -> float:
    """Returns the time at which the last watcher had the message."""
    for line in output:
        found, _, when = line.partition(b" ")
        if int(found) == number:
            return float(when)
    sys.exit("the watchers have ended")


def _watch(host: str, port: int, count: int) -> None:
    """Prints the number of each message, and the time at which the last watcher had it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    request = sys.stdin.buffer.read()
    arrivals: Counter[int] = Counter()
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            connection = socket.create_connection((host, port), timeout=60)
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                for found in _MESSAGE.findall(_received(key.fileobj)):
                    arrivals[int(found)] += 1
                    if arrivals[int(found)] == count:
                        print(int(found), time.monotonic(), flush=True)


def _received(connection: socket.socket) -> bytes:
    """Reads one message. Messages are short and arrive in one piece."""
    data = connection.recv(1 << 18)
    if not data or (data.startswith(b"HTTP/1.1") and not data.startswith(b"HTTP/1.1 200")):
        sys.exit(f"the stream ended: {data[:200]!r}")
    return data


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _watch(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        table.main(measure)
