"""Jobs accepted a second, and the latency of each answer: `python -m bench.submit`.

The peer is a plain FastAPI that inserts one row a request into the same kind of database, as durably. The jobs need a
GPU, which the worker lacks, so they stay in the queue and none runs. Batches have no peer.
"""

from collections.abc import Iterator
import json
from pathlib import Path
import socket
import sys
import time

from bench import table
from bench.load import Load, drive, exchange, post
from bench.peers import inserts
from bench.service import Service, databases, new_database, scratch, up
from bench.table import Row, percentile

REPEATS = 3
SECONDS = {1: 2.0, 16: 3.0}
"""Duration of each repeat, by the number of clients."""
SPEC = {
    "name": "bench",
    "trainer": "image-classification",
    "config": {"data": {"source": "digits"}},
    "resources": {"devices_per_node": 1, "device": "cuda"},
}
BATCH = 10_000
"""Jobs of a request."""
_PEER = "FastAPI, one insert"


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        for name, database in found.items():
            yield from _on(name, database, folder / name)


def _on(name: str, database: str | None, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    theirs = new_database(database, "peer") if database else f"sqlite:///{folder / 'peer.db'}"
    with up(folder, database=database) as service, inserts.running(theirs) as peer:
        request = post("/v1/jobs", SPEC, token=service.token)
        for clients, seconds in SECONDS.items():
            loads: list[tuple[Load, Load]] = []
            for _ in range(REPEATS):
                ours = drive(service.address, request, clients=clients, seconds=seconds)
                loads.append((ours, drive(peer.address, post("/rows", SPEC), clients=clients, seconds=seconds)))
            yield from _rows(f"{name}, {clients} client{'s' if clients > 1 else ''}", loads)
        rates = [_rate_of_a_batch(service) for _ in range(REPEATS)]
        yield Row(f"jobs accepted, {name}, batches of {BATCH}", "/s", rates, at_least=3000)


def _rate_of_a_batch(service: Service) -> float:
    """Returns the jobs of a batch for each second until its answer. Exits if one of them was refused."""
    request = post("/v1/jobs/batch", {"jobs": [SPEC] * BATCH}, token=service.token)
    with socket.create_connection(service.address, timeout=300) as connection:
        began = time.perf_counter()
        status, body = exchange(connection, request)
        seconds = time.perf_counter() - began
    if not status.startswith("2") or any("error" in item for item in json.loads(body)["data"]):
        sys.exit(f"a batch was answered {status}: {body[:500]!r}")
    return BATCH / seconds


def _rows(where: str, loads: list[tuple[Load, Load]]) -> Iterator[Row]:
    ours, theirs = [pair[0] for pair in loads], [pair[1] for pair in loads]
    yield Row(
        f"jobs accepted, {where}",
        "/s",
        [load.rate for load in ours],
        peer=_PEER,
        theirs=[load.rate for load in theirs],
        at_least=300,
    )
    for percent in (50, 99):
        yield Row(
            f"– p{percent} of an answer, {where}",
            "ms",
            [percentile(load.latencies_ms, percent) for load in ours],
            peer=_PEER,
            theirs=[percentile(load.latencies_ms, percent) for load in theirs],
        )
    yield Row(
        f"– CPU time of the clients, {where}",
        "ms/request",
        [load.cpu_s * 1e3 / len(load.latencies_ms) for load in ours],
        peer=_PEER,
        theirs=[load.cpu_s * 1e3 / len(load.latencies_ms) for load in theirs],
    )


if __name__ == "__main__":
    table.main(measure)
