"""Metric points per second from the event log of rank 0 to committed rows: `python -m bench.relay`.

Rank 0 of a real job appends prepared lines to its event log in one write, and the worker relays them. The measured time
ends with the commit of the last point. The peer parses the same lines with the standard library and inserts one row for
each point, with a transaction for each 256 KiB.

It also measures how fast a rank can log: from the first call to the last byte in its event log. The peer writes the
line of each call at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
import json
from pathlib import Path
import time
from typing import Any

from sqlalchemy import BigInteger, Column, Engine, Float, MetaData, Table, Text, create_engine, func, insert, select

from bench import table
from bench.service import databases, new_database, scratch, script, up, wait_for
from bench.table import Row
from store.tables import Series
from torchyard.run.eventlog import EventLog

REPEATS = 3
POINTS = 100_000
KEYS = {"1 key a line": 1, "4 keys a line": 4}
_KEYS_A_CALL = 10
_BLOCK = 1 << 18
SCRIPT = """
import os, pathlib, time

here = pathlib.Path(__file__).parent
while not (here / "end").exists():
    for lines in sorted(here.glob("*.jsonl")):
        with open(os.path.join(os.environ["TORCHYARD_RUN_DIR"], "events.jsonl"), "ab") as events:
            events.write(lines.read_bytes())
        lines.unlink()
    time.sleep(0.005)
"""
_rows = Table(
    "bench_points",
    MetaData(),
    Column("key", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("value", Float),
    Column("time", BigInteger),
)


def measure() -> Iterator[Row]:
    with scratch() as folder, databases() as found:
        yield from _logged(folder)
        for name, database in found.items():
            yield from _on(name, database, folder / name)


def _logged(folder: Path) -> Iterator[Row]:
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    for number in range(REPEATS):
        log = EventLog(folder / f"ours-{number}.jsonl", synchronize=lambda: None)
        ours.append(_flood(lambda values, step, log=log: log.log(values, step=step), log.close))
        with (folder / f"theirs-{number}.jsonl").open("wb", buffering=0) as file:

            def write(values: Mapping[str, float], step: int, file: FileIO = file) -> None:
                line = {"time": time.time_ns() // 1000, "type": "metric", "step": step, "values": values}
                file.write(f"{json.dumps(line, separators=(',', ':'))}\n".encode())

            theirs.append(_flood(write, file.flush))
    peer = "json.dumps and write, a line a call"
    for place, (what, unit, at_least) in enumerate(
        ((f"metric points logged, {_KEYS_A_CALL} a call", "/s", 100_000), ("– the longest call", "ms", None))
    ):
        yield Row(what, unit, [row[place] for row in ours], peer, [row[place] for row in theirs], at_least=at_least)


def _flood(log: Callable[[Mapping[str, float], int], None], close: Callable[[], None]) -> tuple[float, float]:
    """Returns the points per second, and the milliseconds of the longest call."""
    longest, began = 0.0, time.monotonic()
    for step in range(POINTS // _KEYS_A_CALL):
        values = {f"train/metric-{key}": 1 / (step + key + 1) for key in range(_KEYS_A_CALL)}
        start = time.monotonic()
        log(values, step)
        longest = max(longest, time.monotonic() - start)
    close()
    return POINTS / (time.monotonic() - began), longest * 1000


def _on(name: str, database: str | None, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    engine = create_engine(new_database(database, "peer") if database else f"sqlite:///{folder / 'peer.db'}")
    _rows.create(engine)
    with up(folder, database=database) as service:
        code = folder / "code"
        stored = create_engine(service.database)
        with service.client() as client:
            job_id = client.submit(script(code, SCRIPT)).id
            wait_for(lambda: client.get(job_id).state == "running", "the job to run", pause=0.1)
        step = 0
        for shape, keys in KEYS.items():
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(REPEATS):
                lines = metric_lines(first=step, keys=keys)
                step += POINTS
                ours.append(POINTS / relay_s(stored, code, lines, job_id=job_id))
                theirs.append(POINTS / _inserted(engine, lines))
            yield Row(
                f"metric points relayed, {name}, {shape}",
                "/s",
                ours,
                peer="json.loads, one row a point",
                theirs=theirs,
                at_least=20_000,
            )
        (code / "end").touch()
        stored.dispose()
    engine.dispose()


def metric_lines(*, first: int, keys: int) -> bytes:
    """Returns lines of an event log with POINTS points, of so many keys each."""
    now = time.time_ns() // 1000
    steps = range(first, first + POINTS // keys)
    lines: Iterable[dict[str, Any]] = (
        {
            "time": now + step,
            "type": "metric",
            "step": step,
            "values": {f"train/metric-{key}": 1 / (step + key + 1) for key in range(keys)},
        }
        for step in steps
    )
    return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()


def relay_s(stored: Engine, code: Path, lines: bytes, *, job_id: str) -> float:
    """Returns the seconds until all of `lines` are committed."""

    def count() -> int:
        with stored.connect() as connection:
            return connection.scalar(select(func.sum(Series.count)).where(Series.job_id == job_id)) or 0

    before = count()
    prepared = code / "points"
    prepared.write_bytes(lines)
    began = time.monotonic()
    prepared.rename(code / "points.jsonl")
    wait_for(lambda: count() - before == POINTS, "every point", pause=0.005)
    return time.monotonic() - began


def _inserted(engine: Engine, lines: bytes) -> float:
    began = time.monotonic()
    left = lines
    while left:
        end = left[:_BLOCK].rfind(b"\n") + 1
        block, left = left[:end], left[end:]
        rows = [
            {"key": key, "step": event["step"], "value": value, "time": event["time"]}
            for event in map(json.loads, block.splitlines())
            for key, value in event["values"].items()
        ]
        with engine.begin() as connection:
            connection.execute(insert(_rows), rows)
    return time.monotonic() - began


if __name__ == "__main__":
    table.main(measure)
