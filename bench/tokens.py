"""The latency of a request with a personal token: `python -m bench.tokens`.

The peer is the bootstrap administrator's token in the same service, which is compared in memory.
"""

from collections.abc import Iterator

from bench import table
from bench.load import drive, get
from bench.service import databases, scratch, up
from bench.table import Row, percentile

REPEATS = 5
SECONDS = 2.0
_PEER = "the bootstrap token"


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        for name, database in found.items():
            (folder / name).mkdir()
            with up(folder / name, database=database) as service:
                with service.client() as client:
                    personal = client.tokens.make(name="bench").token
                ours, theirs = [], []
                for _ in range(REPEATS):
                    for token, times in ((personal, ours), (service.token, theirs)):
                        load = drive(service.address, get("/v1/me", token=token), clients=1, seconds=SECONDS)
                        times.append(percentile(load.latencies_ms, 50))
            yield Row(f"GET /v1/me with a personal token, p50, {name}", "ms", ours, peer=_PEER, theirs=theirs)


if __name__ == "__main__":
    table.main(measure)
