"""`python -m bench` measures most figures, one after the other, and prints one table."""

from collections.abc import Iterator

from bench import (
    batch,
    cli,
    download,
    install,
    lists,
    live,
    looks,
    own_code,
    page,
    pictures,
    processes,
    queue,
    reads,
    ready,
    relay,
    requests,
    rest,
    restoring,
    sandbox,
    series,
    start,
    submit,
    sweeps,
    table,
    tokens,
    watchers,
)
from bench.table import Row


def measure() -> Iterator[Row]:
    for module in (
        install,
        cli,
        ready,
        rest,
        tokens,
        requests,
        submit,
        processes,
        start,
        own_code,
        sandbox,
        batch,
        queue,
        sweeps,
        lists,
        relay,
        series,
        watchers,
        live,
        looks,
        restoring,
        reads,
        download,
        pictures,
        page,
    ):
        yield from module.measure()


if __name__ == "__main__":
    table.main(measure)
