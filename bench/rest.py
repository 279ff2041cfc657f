"""What the service costs while nothing happens: memory of all its processes, and processor: `python -m bench.rest`.

Memory is the proportional set size (PSS): what processes share is counted once.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
import re
import time

from bench import table
from bench.peers import inserts
from bench.service import scratch, up
from bench.table import Row

SETTLE_S = 5.0
WATCH_S = 30.0
_PEER = "FastAPI, one insert"


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service, inserts.running(f"sqlite:///{folder / 'peer.db'}") as peer:
        time.sleep(SETTLE_S)
        before, peer_before = _cpu_ns(service.pids.values()), _cpu_ns([peer.pid])
        began = time.monotonic()
        time.sleep(WATCH_S)
        share = 100 / 1e9 / (time.monotonic() - began)
        busy = (_cpu_ns(service.pids.values()) - before) * share
        peer_busy = (_cpu_ns([peer.pid]) - peer_before) * share
        memory = {name: pss_mib(pid) for name, pid in service.pids.items()}
        yield Row(
            "memory of the service at rest",
            "MiB",
            [sum(memory.values())],
            peer=_PEER,
            theirs=[pss_mib(peer.pid)],
            at_most=350,
        )
        for name, size in memory.items():
            yield Row(f"– {name}", "MiB", [size])
        yield Row(
            "processor of the service at rest", "% of a core", [busy], peer=_PEER, theirs=[peer_busy], at_most=1.0
        )


def pss_mib(pid: int) -> float:
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def _cpu_ns(pids: Iterable[int]) -> int:
    """Nanoseconds on a processor so far of every thread that still lives: an idle process ends none."""
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


if __name__ == "__main__":
    table.main(measure)
