"""A sweep of 1,000 trials, and the queue beside sweeps: `python -m bench.sweeps`.

The jobs need a GPU, which the worker lacks, so they stay in the queue. The peer is the same service before any sweep,
in the same run.
"""

from collections.abc import Iterator
import json
from pathlib import Path
import socket
import sys
import time
from typing import Any

from bench import table
from bench.load import drive, exchange, get, post
from bench.queue import seconds_to_start
from bench.service import Service, databases, scratch, script, up, wait_for
from bench.submit import SPEC
from bench.table import Row

POINTS = 1000
REPEATS = 3
STARTS = 5
CLIENTS, SECONDS = 16, 3.0
_PEER = "no sweep"
_LR = "config.optimizer.lr"


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        for name, database in found.items():
            yield from _on(name, database, folder / name)


def _on(name: str, database: str | None, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    with up(folder, database=database) as service, service.client() as client:
        fits = script(folder / "code", "")
        plain_starts = [seconds_to_start(client, fits) for _ in range(STARTS)]
        plain_rates = [_rate(service) for _ in range(REPEATS)]
        accepted, queued = zip(*(_sweep(service, POINTS) for _ in range(REPEATS)), strict=True)
        starts = [seconds_to_start(client, fits) for _ in range(STARTS)]
        rates = [_rate_beside_a_sweep(service) for _ in range(REPEATS)]
        yield Row(f"sweep of {POINTS:,} trials accepted, {name}", "s", accepted, at_most=3.0)
        yield Row(f"– until all its jobs are queued, {name}", "s", queued)
        yield Row(f"POST to the start of a job beside sweeps, {name}", "s", starts, _PEER, plain_starts, at_most=0.3)
        yield Row(
            f"jobs accepted while a sweep makes its own, {CLIENTS} clients, {name}", "/s", rates, _PEER, plain_rates
        )


def _sweep(service: Service, points: int) -> tuple[float, float]:
    """Returns the seconds until a sweep is accepted, and from then until all its jobs are queued."""
    began = time.perf_counter()
    path = _submit(service, points)
    accepted = time.perf_counter()
    look = get(path, token=service.token)
    wait_for(lambda: not _call(service, look)["trials"]["waiting"], "the jobs of a sweep")
    return accepted - began, time.perf_counter() - accepted


def _rate_beside_a_sweep(service: Service) -> float:
    """Returns the jobs accepted a second while a controller makes 10,000 others."""
    path = _submit(service, 10 * POINTS)
    rate = _rate(service)
    _call(service, post(f"{path}/cancel", {}, token=service.token))
    return rate


def _rate(service: Service) -> float:
    request = post("/v1/jobs", SPEC, token=service.token)
    return drive(service.address, request, clients=CLIENTS, seconds=SECONDS).rate


def _submit(service: Service, points: int) -> str:
    varied = {_LR: {"min": 1 / points, "max": 1.0, "step": 1 / points}}
    sweep = {"name": "bench", "parameters": varied, "job": SPEC}
    return f"/v1/sweeps/{_call(service, post('/v1/sweeps', sweep, token=service.token))['id']}"


def _call(service: Service, request: bytes) -> dict[str, Any]:
    with socket.create_connection(service.address, timeout=60) as connection:
        status, body = exchange(connection, request)
    if not status.startswith("2"):
        sys.exit(f"the request was answered {status}: {body[:500]!r}")
    return json.loads(body)


if __name__ == "__main__":
    table.main(measure)
