"""Seconds from `torchyard up` until it is ready, on a new folder and on an existing one: `python -m bench.ready`.

`python -m bench.ready TREE` also starts the service of another checkout, in turns.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
import sys

from bench import table
from bench.peers import inserts
from bench.service import Service, scratch, up
from bench.table import Row

REPEATS = 3
_PEER, _BEFORE = "FastAPI, one insert", "the other checkout"
_MOST_OF_BEFORE = 0.6


def measure(before: Path | None = None) -> Iterator[Row]:
    first, again, other = list[Service](), list[Service](), list[Service]()
    theirs: list[float] = []
    with scratch() as folder:
        for number in range(REPEATS):
            data, data_before = folder / str(number), folder / f"before-{number}"
            first.append(_start(data))
            if before is not None:
                _start(data_before, tree=before)
            again.append(_start(data))
            if before is not None:
                other.append(_start(data_before, tree=before))
            with inserts.running(f"sqlite:///{data / 'peer.db'}") as peer:
                theirs.append(peer.ready_s)
    for what, starts in (("the first time", first), ("on the same data", again)):
        seconds = [start.ready_s for start in starts]
        yield Row(f"`up` until it is ready, {what}", "s", seconds, peer=_PEER, theirs=theirs, at_most=1.5)
    cpu = [start.ready_cpu_s for start in again]
    yield Row("– CPU time until then", "s", cpu)
    if other:
        seconds, earlier = [start.ready_s for start in again], [start.ready_s for start in other]
        yield Row("– beside the other checkout", "s", seconds, _BEFORE, earlier, ratio_at_most=_MOST_OF_BEFORE)
        earlier = [start.ready_cpu_s for start in other]
        yield Row("– CPU time, beside the other checkout", "s", cpu, _BEFORE, earlier, ratio_at_most=_MOST_OF_BEFORE)


def _start(data: Path, *, tree: Path | None = None) -> Service:
    data.mkdir(exist_ok=True)
    with up(data, tree=tree) as service:
        return service


if __name__ == "__main__":
    table.main(partial(measure, Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None))
