"""Seconds from `torchyard up` until it is ready, on a new folder and on an existing one: `python -m bench.ready`."""

from collections.abc import Iterator

from bench import table
from bench.peers import inserts
from bench.service import scratch, up
from bench.table import Row

REPEATS = 3


def measure() -> Iterator[Row]:
    first: list[float] = []
    second: list[float] = []
    theirs: list[float] = []
    with scratch() as folder:
        for number in range(REPEATS):
            data = folder / str(number)
            data.mkdir()
            for starts in (first, second):
                with up(data) as service:
                    starts.append(service.ready_s)
            with inserts.running(f"sqlite:///{data / 'peer.db'}") as peer:
                theirs.append(peer.ready_s)
    peer = "FastAPI, one insert"
    yield Row("`up` until it is ready, the first time", "s", first, peer=peer, theirs=theirs, at_most=1.5)
    yield Row("`up` until it is ready, on the same data", "s", second, peer=peer, theirs=theirs, at_most=1.5)


if __name__ == "__main__":
    table.main(measure)
