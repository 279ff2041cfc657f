"""The CPU time of an accepted job with one process of the API and with two: `python -m bench.processes`.

On PostgreSQL. It adds up the CPU time of all processes of the API: with the same number of clients, and with as many
for each process. The clients and the database use the two cores too, so two processes accept no more jobs a second.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import psutil

from bench import table
from bench.load import drive, post
from bench.service import Service, databases, new_database, scratch, up
from bench.submit import SPEC
from bench.table import Row

REPEATS = 5
CLIENTS, SECONDS = 16, 3.0
_MOST_OF_ONE = 1.15


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found, ExitStack() as stack:
        database = found["PostgreSQL"]
        assert database is not None
        services: list[Service] = []
        for count in (1, 2):
            own = new_database(database, f"with_{count}")
            place = folder / str(count)
            place.mkdir()
            services.append(stack.enter_context(up(place, database=own, api_processes=count)))
        one, two = services
        for service in services:
            _cost_ms(service, CLIENTS)  # statements are compiled at first, in each process
        yield _row(one, two, clients=CLIENTS, said=f"the same {CLIENTS} clients")
        yield _row(one, two, clients=2 * CLIENTS, said=f"{CLIENTS} clients each")


def _row(one: Service, two: Service, *, clients: int, said: str) -> Row:
    """`clients`: of the two processes together. The one process has `CLIENTS`."""
    costs = [(_cost_ms(one, CLIENTS), _cost_ms(two, clients)) for _ in range(REPEATS)]
    return Row(
        f"CPU time of a submission, two API processes, PostgreSQL, {said}",
        "ms",
        [ours for _, ours in costs],
        peer=f"one process, {CLIENTS} clients",
        theirs=[theirs for theirs, _ in costs],
        ratio_at_most=_MOST_OF_ONE,
    )


def _cost_ms(service: Service, clients: int) -> float:
    parent = psutil.Process(service.pids["api"])
    processes = [parent, *parent.children()]
    began = sum(map(_cpu_s, processes))
    load = drive(service.address, post("/v1/jobs", SPEC, token=service.token), clients=clients, seconds=SECONDS)
    return (sum(map(_cpu_s, processes)) - began) * 1e3 / len(load.latencies_ms)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    table.main(measure)
