"""The stream of ten jobs that log ten keys each, and a log of 1,000,000 lines: `python -m bench.live`.

A delay begins when a batch of points is committed, as a worker does it, and ends when a client receives the event. The
peer of a search is `grep` on the file that the service sends.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
import http.client
import json
from pathlib import Path
import random
import subprocess
from threading import Thread
import time
from urllib.parse import urlencode

from bench import table
from bench.service import Service, scratch, up
from bench.submit import SPEC
from bench.table import Row
from store.announcement import Announcement
from store.db.database import Database
from store.output import logs, metrics
from store.output.facts import MetricPoint, NewLines
from store.queue.announcing import Queue
from store.service_identity import service_id
from torchyard.cli.up import redis_server
from torchyard.host.datadir import redis_url

REPEATS = 15
JOBS, KEYS, BATCHES = 10, 10, 40
"""Each job stores a batch of one point of each key every second."""
LINES, CHUNK = 1_000_000, 1000
_RARE, _COMMON = "CUDA out of memory", "loss 0.12"
_GREP = "grep, of the file"


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service:
        with service.client() as client:
            job_ids = [client.submit(SPEC).id for _ in range(JOBS)]
            logged = client.submit(SPEC).id
        yield Row(
            f"commit of a point to its event, {JOBS} jobs × {KEYS} keys", "ms", _delays(service, job_ids), at_most=500
        )
        yield from _log_rows(service, logged, folder / "log.txt")


def store_log(service: Service, job_id: str) -> None:
    """Stores a log of `LINES` lines."""
    with closing(Database(service.database)) as database:
        for first in range(0, LINES, CHUNK):
            texts = [_text(number) for number in range(first, first + CHUNK)]
            with database.write() as session:
                logs.add(session, job_id, attempt=1, lines=[NewLines(0, "stdout", texts)])


def _delays(service: Service, job_ids: list[str]) -> list[float]:
    """Returns the milliseconds from each commit to its event."""
    committed: dict[tuple[str, int], float] = {}
    delays: list[float] = []
    folder = service.data / "redis"
    with (
        closing(Database(service.database)) as database,
        closing(
            Queue(redis_url(folder, socket=redis_server.socket_in(folder)), service=lambda: service_id(database))
        ) as queue,
    ):
        connection = http.client.HTTPConnection(*service.address, timeout=60)
        headers = {"Authorization": f"Bearer {service.token}"}
        connection.request("GET", f"/v1/stream?{urlencode({'job': job_ids}, doseq=True)}", headers=headers)
        answer = connection.getresponse()
        answer.readline()  # the stream has begun
        writing = Thread(target=_write, args=(database, queue, job_ids, committed))
        writing.start()
        while len(delays) < JOBS * BATCHES:
            line = answer.readline()
            now = time.monotonic()
            if line.startswith(b'data: {"job_id"'):
                data = json.loads(line.removeprefix(b"data: "))
                steps = data["metrics"]["train/k0"]["step"]
                delays += [(now - committed[data["job_id"], step]) * 1e3 for step in steps]
        writing.join()
        connection.close()
    return delays


def _write(database: Database, queue: Queue, job_ids: list[str], committed: dict[tuple[str, int], float]) -> None:
    # Jobs do not log in step: each batch comes at a random moment of its tenth of a second.
    chance = random.Random(1)
    for step in range(BATCHES):
        for job_id in job_ids:
            due = time.monotonic() + 1 / len(job_ids)
            time.sleep(chance.random() / len(job_ids))
            points = [MetricPoint(f"train/k{key}", step, step / 7, step) for key in range(KEYS)]
            with database.write() as session:
                metrics.add(session, job_id, attempt=1, points=points)
                committed[job_id, step] = time.monotonic()
            queue.announce(Announcement(changed={job_id}))
            time.sleep(max(0.0, due - time.monotonic()))


def _log_rows(service: Service, job_id: str, file: Path) -> Iterator[Row]:
    store_log(service, job_id)
    path = f"/v1/jobs/{job_id}/logs"
    with service.client() as client:
        file.write_bytes(_answer(service, f"{path}/download"))
        for what, pattern, regex in (
            ("a text that one line has", _RARE, False),
            ("an expression that one line matches", "CUDA out of m[a-z]+y", True),
            ("an expression that 1% of the lines match", "loss 0\\.12[0-9]", True),
        ):
            flags = ["-E"] if regex else ["-F"]
            ours = _timed(
                lambda p=pattern, r=regex: sum(1 for _ in client.jobs.search_logs(job_id, p, regex=r, limit=100))
            )
            theirs = _timed(lambda p=pattern, f=flags: _grep(p, f, file))
            yield Row(
                f"a search of {LINES:,} lines for {what}, up to 100 lines",
                "ms",
                ours,
                peer=f"{_GREP}, every line",
                theirs=theirs,
            )
    jump = _timed(lambda: _answer(service, f"{path}?before=900000&limit=500"))
    yield Row(f"500 lines before line 900,000 of {LINES:,}", "ms", jump, at_most=300)
    whole = _timed(lambda: _answer(service, f"{path}/download"), repeats=3)
    yield Row(f"the file of {LINES:,} lines ({file.stat().st_size / 1e6:.0f} MB)", "ms", whole)


def _text(number: int) -> str:
    if number == LINES * 9 // 10:
        return f"rank 0: {_RARE}: tried to allocate 2.00 GiB"
    return f"step {number} of {LINES}: loss 0.{number * 7919 % 1000:03d}, 812.4 samples/s, lr 0.0003"


def _grep(pattern: str, flags: list[str], file: Path) -> None:
    subprocess.run(["grep", "-i", "-c", *flags, pattern, str(file)], stdout=subprocess.DEVNULL, check=True)


def _answer(service: Service, path: str) -> bytes:
    with closing(http.client.HTTPConnection(*service.address, timeout=60)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {service.token}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer.read()


def _timed(call: Callable[[], object], *, repeats: int = REPEATS) -> list[float]:
    found: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1e3)
    return found


if __name__ == "__main__":
    table.main(measure)
