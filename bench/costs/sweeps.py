"""Sweeps, batches and queues at their limits, for `bench.costs.cases`."""

from collections.abc import Callable
from datetime import timedelta
import random
from typing import Any

from pydantic_core import from_json, to_json

from controller.sweeps.sampling import sample
from store.facts.callers import SERVICE
from store.facts.line import Member
from store.facts.submission import Submission
from store.facts.sweeps import TrialFacts
from store.rows import cycles
from store.rows.head_turns import in_turn
from store.rows.shapes import shape
from torchyard.contract.job import JobState
from torchyard.contract.maximums import Maximums
from torchyard.contract.points import resolved, spec_of
from torchyard.contract.spec import parse_spec
from torchyard.contract.sweeps import MOST_KEYS, MOST_POINTS, MOST_SWEEP_BYTES, parse_sweep

Prepare = Callable[[], object]
_JOB: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///x", "args": []}}


def too_many_keys() -> Prepare:
    return _parse({"method": "list", "points": [{f"1{number}": 1 for number in range(80_000)}], "job": _JOB})


def wrong_points() -> Prepare:
    points = [{f"1{number}": 1 for number in range(10)} for _ in range(9000)]
    return _parse({"method": "list", "points": points, "job": _JOB})


def most_points() -> Prepare:
    points = [{f"args.a{number}": 1 for number in range(7)} for _ in range(MOST_POINTS)]
    return _parse({"method": "list", "points": points, "job": _JOB})


def one_point() -> Prepare:
    """What checking a sweep does between two turns."""
    job = {"trainer": "script", "config": {"code": "file:///x", "args": ["a" * 250] * 900}}
    point = {f"args.a{number}": 1 for number in range(MOST_KEYS)}
    raw = {"method": "list", "points": [point] * 10, "job": job}
    sweep, _ = resolved(parse_sweep(raw), visibility="private", maximums=Maximums())
    return lambda: spec_of(sweep, 0, sweep.points[0])


def proposal() -> Prepare:
    names, chance = [f"args.a{number}" for number in range(10)], random.Random(1)
    parameters = {name: [*range(1000)] for name in names}
    spec = parse_sweep({"method": "tpe", "trials": MOST_POINTS, "mode": "min", "parameters": parameters, "job": {}})
    trials = [
        TrialFacts(
            number=number,
            point={name: chance.randrange(1000) for name in names},
            job_id="job",
            state=JobState.SUCCEEDED,
            value=chance.random(),
            step=1,
        )
        for number in range(MOST_POINTS)
    ]
    return lambda: [*sample(spec, trials, count=1)]


def circles() -> Prepare:
    names = [f"{place:0100}" for place in range(500)]
    wanted: dict[int, Submission] = {}
    for place, name in enumerate(names):
        after = [{"job": names[(place + further) % len(names)]} for further in range(1, 33)]
        wanted[place] = Submission(parse_spec({**_JOB, "name": name, "after": after}), SERVICE, "private")
    return lambda: cycles.find(wanted)


def distinct_requests() -> Prepare:
    heads = {
        (shape("ada", {"memory_gb": number}, preemptible=False, limit=timedelta(hours=1)), 0): Member(
            f"job_{number}", number
        )
        for number in range(10_000)
    }
    return lambda: in_turn(heads, 7)


def _parse(raw: dict[str, Any]) -> Prepare:
    body = to_json(raw)
    assert len(body) <= MOST_SWEEP_BYTES
    return lambda: parse_sweep(from_json(body))
