"""The largest sweeps, batches and queues, for `bench.costs.cases`."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
import random
from tempfile import TemporaryDirectory
from typing import Any
import weakref

from pydantic_core import from_json, to_json
from sqlalchemy import insert
from sqlalchemy.orm import Session

from controller.sweeps.sampling import sample
from store.db.database import Database
from store.jobs import cycles
from store.jobs.shapes import shape
from store.jobs.submission import Submission
from store.queue.groups import in_turn
from store.queue.line_facts import Member
from store.store import Store
from store.sweeps import due, submit
from store.sweeps.facts import NewSweep, TrialFacts
from store.tables import SweepTrial
from store.team.callers import SERVICE
from tests.databases import SQLiteDatabases
from tests.store.fixture import store_on
from torchyard.contract.spec.maximums import Maximums
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.points import resolved, spec_of
from torchyard.contract.sweeps.spec import MOST_KEYS, MOST_POINTS, MOST_SWEEP_BYTES, parse_sweep

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


def known_trials() -> Prepare:
    store, sweep_id = _stored_trials()
    return lambda: _read(store, due.read_known_trials, sweep_id)


def waiting_trials() -> Prepare:
    store, sweep_id = _stored_trials()
    return lambda: _read(store, due.read_trials_at_rungs, sweep_id)


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


def _stored_trials() -> tuple[Store, str]:
    """Stores a sweep whose trials have ended, in a database that is removed with its process."""
    folder = TemporaryDirectory()
    migrated = SQLiteDatabases(Path(folder.name)).migrated()
    database = Database(migrated.__enter__())
    weakref.finalize(database, folder.cleanup)
    store, chance = store_on(database), random.Random(1)
    names = [f"args.a{number}" for number in range(10)]
    raw = {"method": "tpe", "trials": MOST_POINTS, "parameters": {name: [1, 2] for name in names}, "job": _JOB}
    spec, first = resolved(parse_sweep(raw), visibility="private", maximums=Maximums())
    with store.write("sweeps") as session:
        sweep_id = submit.submit(session, NewSweep(spec, SERVICE, "private"), first)[0].id
    ended = {"job_id": None, "outcome": "succeeded", "error": None}
    rows = [
        {**ended, "sweep_id": sweep_id, "number": number, "value": chance.random(), "rungs": _rungs(number)}
        | {"point": {name: f"{chance.randrange(900):0145}" for name in names}}
        for number in range(MOST_POINTS)
    ]
    with database.write() as session:
        session.execute(insert(SweepTrial), rows)
    return store, sweep_id


def _read(store: Store, function: Callable[[Session, str], object], sweep_id: str) -> object:
    with store.read() as session:
        return function(session, sweep_id)


def _rungs(number: int) -> list[dict[str, float]]:
    """Returns the rungs of a trial: every second one goes on from each."""
    return [{"at": 2**place, "value": 0.5} for place in range(13) if number % 2**place == 0]


def _parse(raw: dict[str, Any]) -> Prepare:
    body = to_json(raw)
    assert len(body) <= MOST_SWEEP_BYTES
    return lambda: parse_sweep(from_json(body))
