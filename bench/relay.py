"""Metric points a second, from rank 0's file to committed rows: `python -m bench.relay`.

A real job's rank 0 appends prepared lines to its event log in one write, and the worker relays them. The time is from
that write to the commit that counts the last point. The peer parses the same lines with the standard library and
inserts one row a point, a transaction for each 256 KiB, and nothing else.
"""

from collections.abc import Iterable, Iterator
import json
from pathlib import Path
import time
from typing import Any

from sqlalchemy import BigInteger, Column, Engine, Float, MetaData, Table, Text, create_engine, func, insert, select

from bench import table
from bench.service import databases, new_database, scratch, script, up, wait_for
from bench.table import Row
from store.tables import Series

REPEATS = 3
POINTS = 100_000
KEYS = {"1 key a line": 1, "4 keys a line": 4}
_BLOCK = 1 << 18
_SCRIPT = """
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
        for name, database in found.items():
            yield from _on(name, database, folder / name)


def _on(name: str, database: str | None, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    engine = create_engine(new_database(database, "peer") if database else f"sqlite:///{folder / 'peer.db'}")
    _rows.create(engine)
    with up(folder, database=database) as service:
        code = folder / "code"
        stored = create_engine(service.database)
        with service.client() as client:
            job_id = client.submit(script(code, _SCRIPT)).id
            wait_for(lambda: client.get(job_id).state == "running", "the job to run", pause=0.1)
        step = 0
        for shape, keys in KEYS.items():
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(REPEATS):
                lines = _lines(first=step, keys=keys)
                step += POINTS
                ours.append(POINTS / _relayed(stored, code, lines, job_id=job_id))
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


def _lines(*, first: int, keys: int) -> bytes:
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


def _relayed(stored: Engine, code: Path, lines: bytes, *, job_id: str) -> float:
    """Seconds until all of `lines` is committed."""

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
