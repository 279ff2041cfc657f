"""The latency of `GET /v1/me` while another user has 40 heavy requests open: `python -m bench.reads`.

The heavy requests search a log by text and by expressions that RE2 matches slowly, download it, read a long series, and
validate specs of unknown keys, the largest sweeps and larger ones, and batches with circular dependencies. The peer is
the same service without them, in turns.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
import json
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import quote

from bench import load, table
from bench.live import store_log
from bench.series import POINTS, seed
from bench.service import Service, scratch, up
from bench.submit import SPEC
from bench.table import Row

ROUNDS, SECONDS = 5, 4.0
READS = 40
_SETTLE_S = 1.0
_SLOW = r"[xy ].{200}q|[0-9].{150}z"
"""RE2 needs some CPU-seconds for a MiB of it."""


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service:
        quiet, stormy, answers = _rounds(service)
    what = f"`/v1/me` of another user while one has {READS} heavy reads open"
    peer = "the same, at rest"
    for percent, most in ((99, 10.0), (50, None)):
        ours, theirs = ([table.percentile(latencies, percent) for latencies in each] for each in (stormy, quiet))
        yield Row(f"{what}, p{percent}", "ms", ours, peer=peer, theirs=theirs, ratio_at_most=most)
    yield Row("– slowest", "ms", [max(each) for each in stormy], peer=peer, theirs=[max(each) for each in quiet])
    for status, count in sorted(answers.items()):
        yield Row(f"– heavy reads that were answered {status}", "/s", [count / (ROUNDS * (SECONDS + _SETTLE_S))])


def _rounds(service: Service) -> tuple[list[list[float]], list[list[float]], Counter[str]]:
    """Returns the latencies of each round at rest and in the storm, and the statuses of the storm's answers."""
    requests = _requests(service)
    with service.client() as client:
        client.users.add("bob")
        token = client.tokens.make(user="bob").token
    me = load.get("/v1/me", token=token)
    quiet: list[list[float]] = []
    stormy: list[list[float]] = []
    answers: Counter[str] = Counter()
    for _ in range(ROUNDS):
        quiet.append(load.drive(service.address, me, clients=1, seconds=SECONDS).latencies_ms)
        with _storm(service, requests, answers):
            time.sleep(_SETTLE_S)
            stormy.append(load.drive(service.address, me, clients=1, seconds=SECONDS).latencies_ms)
        time.sleep(_SETTLE_S)
    return quiet, stormy, answers


def _requests(service: Service) -> list[bytes]:
    """Stores a long log and a long series, and returns reads of them, and specs to validate."""
    with service.client() as client:
        logged = client.submit(SPEC).id
    store_log(service, logged)
    series = seed(service, size=1000)
    logs = f"/v1/jobs/{logged}/logs"
    paths = [
        f"{logs}/search?regex=true&q={quote(_SLOW)}",
        f"{logs}/search?q={quote('x' * 100)}",
        f"{logs}/search?q=loss&limit=1000",
        f"{logs}/download?timestamps=true",
        f"/v1/jobs/{series}/metrics?max_points={POINTS}",
        f"/v1/metrics?job={series}&key=train/loss-0&max_points={POINTS}&smooth=0.9",
        f"{logs}?limit=1000",
        "/v1/jobs?q=digits&sort=name&counts=true",
    ]
    specs = [{"trainer": "script", **{f"k{number}": 0 for number in range(count)}} for count in (80, 1400)]
    sweeps = [{"method": "list", "points": points, "job": SPEC} for points in (_points(50, 400), _points(35_000, 1))]
    names = [f"j{number}" for number in range(5000)]
    cycle = [{**SPEC, "name": name, "after": [{"job": after}]} for name, after in pairwise([*names, names[0]])]
    return [
        *(load.get(path, token=service.token) for path in paths),
        *(load.post("/v1/jobs/validate", spec, token=service.token) for spec in specs),
        *(load.post("/v1/sweeps/validate", sweep, token=service.token) for sweep in sweeps),
        load.post("/v1/jobs/batch", {"jobs": cycle}, token=service.token),
    ]


def _points(keys: int, count: int) -> list[dict[str, str]]:
    return [{f"labels.key{number}": "x" for number in range(keys)} for _ in range(count)]


@contextmanager
def _storm(service: Service, requests: list[bytes], answers: Counter[str]) -> Generator[None]:
    """Keeps `READS` reads open during the block, by another process. Adds the statuses of their answers."""
    host, port = service.address
    command = [sys.executable, "-m", "bench.reads", host, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([request.decode() for request in requests]).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()  # the storm has begun
        try:
            yield
        finally:
            process.stdin.close()  # it ends the storm
            answers.update(json.loads(process.stdout.read()))


def _send_storm(host: str, port: int) -> None:
    """Sends the requests of the first line of the input until the input ends. Prints how often each status came."""
    requests = json.loads(sys.stdin.readline())
    statuses: Counter[str] = Counter()
    ending = threading.Event()

    def read(place: int) -> None:
        request = requests[place % len(requests)].encode().replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
        while not ending.is_set():
            with socket.create_connection((host, port), timeout=60) as connection:
                connection.sendall(request)
                status = connection.recv(1 << 18).split(b" ", 2)[1].decode()
                while not ending.is_set() and connection.recv(1 << 18):
                    pass
            statuses[status] += 1
            if status == "429":
                ending.wait(1.0)

    threads = [threading.Thread(target=read, args=(place,), daemon=True) for place in range(READS)]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    sys.stdin.read()
    ending.set()
    print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _send_storm(sys.argv[1], int(sys.argv[2]))
    else:
        table.main(measure)
