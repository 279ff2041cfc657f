"""Jobs of public traces. A seed decides what they lack: limits, progress, early ends and preemptible jobs."""

from collections.abc import Iterator, Sequence
import csv
from dataclasses import dataclass, replace
from datetime import UTC, datetime
import math
import os
from pathlib import Path
from random import Random

FOLDER = Path(os.environ.get("TORCHYARD_TRACES", "../shared/data/traces"))
JOBS = 5_000
LOAD = 0.95
FLOOD_LOAD, FLOOD_JOBS, FLOOD_S, FLOOD_DEVICES = 0.7, 400, 4 * 3600.0, 8
FLOOD_USER = "flood"
_DEFAULT_LIMIT_S = 86_400.0
_ROUND_S = 600.0
_FIRST_OF_KTH = 10_000


@dataclass(frozen=True)
class TraceJob:
    """All times are seconds."""

    number: int
    user: str
    submitted: float
    run: float
    devices: int
    limit: float
    preemptible: bool
    announced: float | None
    """The run that its progress promises; None if it tells none."""


@dataclass(frozen=True)
class Row:
    """A job as it is written in a trace."""

    submitted: float
    run: float
    devices: int
    user: str
    limit: float | None = None


@dataclass(frozen=True)
class Trace:
    name: str
    jobs: Sequence[TraceJob]
    hosts: tuple[int, ...]
    """The devices of each."""


def philly(seed: str, preemptible: float) -> Trace:
    random = Random(f"philly {seed}")
    jobs = _philly(random, LOAD, JOBS, preemptible)
    return Trace("philly", jobs, (8,) * 6)


def flood(seed: str, preemptible: float) -> Trace:
    """Returns a trace in the middle of which one user submits many jobs at once, each for a whole host."""
    random = Random(f"flood {seed}")
    jobs = _philly(random, FLOOD_LOAD, JOBS, preemptible)
    middle = (jobs[0].submitted + jobs[-1].submitted) / 2
    row = Row(middle, FLOOD_S, FLOOD_DEVICES, FLOOD_USER)
    more = [_job(random, len(jobs) + number, row, preemptible) for number in range(FLOOD_JOBS)]
    return Trace("flood", sorted((*jobs, *more), key=lambda job: (job.submitted, job.number)), (8,) * 6)


def kth(seed: str, preemptible: float) -> Trace:
    """Returns a part of KTH-SP2 with its own users, times and limits: its load is 0.75."""
    random = Random(f"kth {seed}")
    rows = [*_kth_rows()][_FIRST_OF_KTH : _FIRST_OF_KTH + JOBS]
    jobs = [_job(random, number, row, preemptible) for number, row in enumerate(rows)]
    return Trace("kth", jobs, (100,))


def whole_kth() -> Trace:
    """Returns all jobs of KTH-SP2 as they are, for a comparison with what others published."""
    jobs = [
        TraceJob(number, row.user, row.submitted, row.run, row.devices, row.limit or row.run, False, None)
        for number, row in enumerate(_kth_rows())
    ]
    return Trace("whole kth", jobs, (100,))


def _philly(random: Random, load: float, count: int, preemptible: float) -> list[TraceJob]:
    rows = sorted(random.sample(_philly_rows(), count), key=lambda row: row.submitted)
    jobs = [_job(random, number, row, preemptible) for number, row in enumerate(rows)]
    return _stretched(jobs, load, 48)


def _philly_rows() -> list[Row]:
    with (FOLDER / "philly.csv").open() as file:
        found: list[Row] = []
        for row in csv.DictReader(file):
            if not "2017-10-01" <= row["timestamp"] < "2017-10-29":
                continue
            devices, run = int(row["num_gpus"]), float(row["duration"])
            if 1 <= devices <= 8 and run >= 60 and run * devices < 1000 * 3600:
                at = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
                found.append(Row(at, run, devices, row["cluster"]))
    return found


def _kth_rows() -> Iterator[Row]:
    """Yields each job that ran. None runs longer than its limit."""
    with (FOLDER / "KTH-SP2.swf").open() as file:
        for line in file:
            if line.startswith(";"):
                continue
            fields = line.split()
            submitted, run, devices, limit = float(fields[1]), float(fields[3]), int(fields[4]), float(fields[8])
            if run > 0 and 0 < devices <= 100:
                yield Row(
                    submitted, min(run, limit) if limit > 0 else run, devices, fields[11], limit if limit > 0 else run
                )


def _job(random: Random, number: int, row: Row, preemptible: float) -> TraceJob:
    """Returns a job with what the trace lacks. Each takes as many random numbers, so that shares can be compared."""
    limit = _limit(random, row.run)
    tells, ends_early, part, error = random.random(), random.random(), random.uniform(0.1, 0.9), random.gauss(0, 0.1)
    announced = row.run / part if ends_early < 0.3 else row.run
    return TraceJob(
        number=number,
        user=row.user,
        submitted=row.submitted,
        run=row.run,
        devices=row.devices,
        limit=limit if row.limit is None else row.limit,
        preemptible=random.random() < preemptible,
        announced=announced * math.exp(error) if tells < 0.85 else None,
    )


def _limit(random: Random, run: float) -> float:
    default, factor = random.random() < 0.4, random.uniform(1.1, 4.0)
    if default and run <= _DEFAULT_LIMIT_S:
        return _DEFAULT_LIMIT_S
    return math.ceil(run * factor / _ROUND_S) * _ROUND_S


def _stretched(jobs: Sequence[TraceJob], load: float, devices: int) -> list[TraceJob]:
    """Returns the jobs with their submissions stretched so that all work over the whole span is the load."""
    first, last = jobs[0].submitted, jobs[-1].submitted
    work = sum(job.run * job.devices for job in jobs)
    factor = work / (devices * load) / (last - first)
    return [replace(job, submitted=(job.submitted - first) * factor) for job in jobs]
