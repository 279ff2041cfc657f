"""The API's CPU time for a request: `python -m bench.requests [TREE]`, where TREE is a checkout to compare with.

It is what the kernel counts for the process, over 1,000 requests of one client. The peer is a plain FastAPI with one
table, on the same kind of database. The jobs need a GPU, which the worker lacks, so none runs.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
import socket
import sys
import time

from bench import table
from bench.load import exchange, get, post
from bench.peers import inserts
from bench.service import Service, scratch, up
from bench.submit import SPEC
from bench.table import Row

ROUNDS, REQUESTS = 3, 1000
_WARM_UP = 50
_LISTED = 60
_PEER, _BEFORE = "FastAPI, one table", "the other checkout"
_BUDGET_MS = {"GET /v1/me": 0.4, "a job": 1.2, "a page of 50 jobs": 3.1, "a submission": 1.45}
_MOST_OF_BEFORE = 0.55


def measure(before: Path | None = None) -> Iterator[Row]:
    with scratch() as folder, ExitStack() as stack:
        peer = stack.enter_context(inserts.running(f"sqlite:///{folder / 'peer.db'}"))
        ours = stack.enter_context(up(_made(folder / "ours")))
        other = None if before is None else stack.enter_context(up(_made(folder / "before"), tree=before))
        wanted, of_peer = _requests(ours), _requests_of_peer(peer)
        of_other = {} if other is None else _requests(other)
        for name, request in wanted.items():
            costs, theirs, earlier = list[float](), list[float](), list[float]()
            for _ in range(ROUNDS):
                costs.append(_cost_ms(ours.address, ours.pids["api"], request))
                if name in of_peer:
                    theirs.append(_cost_ms(peer.address, peer.pid, of_peer[name]))
                if other is not None:
                    earlier.append(_cost_ms(other.address, other.pids["api"], of_other[name]))
            what = f"API CPU time, {name}"
            yield Row(what, "ms", costs, peer=_PEER if theirs else "", theirs=theirs, at_most=_BUDGET_MS.get(name))
            if earlier:
                most = _MOST_OF_BEFORE if name in _BUDGET_MS else None
                yield Row("– beside the other checkout", "ms", costs, peer=_BEFORE, theirs=earlier, ratio_at_most=most)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _requests(service: Service) -> dict[str, bytes]:
    """Submits jobs, and returns a request of each kind."""
    with service.client() as client:
        job_id = [client.submit(SPEC).id for _ in range(_LISTED)][-1]
        client.users.add("bob")
        personal = client.tokens.make(user="bob").token
    token = service.token
    return {
        "/healthz": get("/healthz"),
        "GET /v1/me": get("/v1/me", token=token),
        "GET /v1/me by a personal token": get("/v1/me", token=personal),
        "a job": get(f"/v1/jobs/{job_id}", token=token),
        "a page of 50 jobs": get("/v1/jobs?limit=50", token=token),
        "a page of 50 jobs, in gzip": get("/v1/jobs?limit=50", token=token, headers=["Accept-Encoding: gzip"]),
        "a submission": post("/v1/jobs", SPEC, token=token),
    }


def _requests_of_peer(peer: inserts.Peer) -> dict[str, bytes]:
    submission = post("/rows", SPEC)
    with socket.create_connection(peer.address) as connection:
        for _ in range(_LISTED):
            exchange(connection, submission)
    return {
        "/healthz": get("/healthz"),
        "a job": get("/rows/1"),
        "a page of 50 jobs": get("/rows?limit=50"),
        "a submission": submission,
    }


def _cost_ms(address: tuple[str, int], pid: int, request: bytes) -> float:
    """Returns the milliseconds of processor time that the process takes for a request. Exits if one is refused."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = 0
        for number in range(-_WARM_UP, REQUESTS):
            if number == 0:
                began = _cpu_ns(pid)
            status, _ = exchange(connection, request)
            if not status.startswith("2"):
                sys.exit(f"a request was answered {status}")
        return (_cpu_ns(pid) - began) / REQUESTS / 1e6


def _cpu_ns(pid: int) -> int:
    """Returns the processor time of all threads of the process, also of those that have ended."""
    return time.clock_gettime_ns(~pid << 3 | 2)  # the clock of clock_getcpuclockid(3), which Python does not have


if __name__ == "__main__":
    table.main(partial(measure, Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None))
