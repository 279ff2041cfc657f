"""One chaos run, from an empty folder to the report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
import sys
import time

from tests.chaos import history, nemesis
from tests.chaos.evidence import Evidence
from tests.chaos.history import Story
from tests.chaos.jobs import Kind, Stream, spec
from tests.chaos.nemesis import Nemesis
from tests.chaos.report import Report
from tests.chaos.watch import Watch
from tests.chaos.yard import Kind as Database
from tests.chaos.yard import Yard, yard
from torchyard.client import Client
from torchyard.contract.job import JobState

_REFERENCE_S = 240.0
_DRAIN_S = 600.0
_LAST_LOOKS_S = 15.0


@dataclass(frozen=True)
class Options:
    seed: int
    jobs: int
    kills: int
    minutes: float
    database: Database
    kinds: Sequence[Kind]


def run(folder: Path, options: Options) -> Report:
    """Breaks a service in `folder`, heals it and checks it. When this returns or raises, nothing of it runs.

    Raises TimeoutError where the service does not even start, and what a part of the run itself could not cope with.
    """
    with yard(folder, database=options.database) as made, made.client() as client:
        say = _Clock()
        say(f"chaos: seed {options.seed}, {options.kills} kills in {options.minutes:g} min; references first")
        references = _references(made, client, options.kinds)
        stream = Stream(made.client(), code=made.code, count=options.jobs, seed=options.seed, kinds=options.kinds)
        watch = Watch(made.client(patience=0), lambda: [errand.job_id for errand in list(stream.errands)])
        moments = nemesis.plan(seed=options.seed, kills=options.kills, seconds=60 * options.minutes)
        foe = Nemesis(made, stream, moments, seed=options.seed, wounded=watch.wounded, say=say)
        threads = (stream, watch, foe)
        try:
            for thread in threads:
                thread.start()
            made.tend_until(lambda: not foe.is_alive(), within=float("inf"))
            say("healing")
            stream.close()
            drained = made.tend_until(lambda: not stream.is_alive(), within=_DRAIN_S)
            say("drained" if drained else "not drained")
            made.tend_until(lambda: not watch.open_wounds, within=_LAST_LOOKS_S)
        finally:
            foe.close()
            watch.close()
            stream.give_up()
            made.tend_until(lambda: not any(thread.is_alive() for thread in threads), within=60)
        for thread in threads:
            if thread.failure is not None:
                raise thread.failure
        evidence = Evidence(made, client, stream.errands, stream.complaints, references, foe.deeds, watch)
        found = evidence.violations()
        if found:
            print(made.logs(), file=sys.stderr)
        return _report(options, evidence, found)


def _references(made: Yard, client: Client, kinds: Sequence[Kind]) -> dict[Kind, Story]:
    """Each kind of job, undisturbed."""
    jobs: dict[Kind, str] = {kind: client.submit(spec(kind, code=made.code, label="reference")).id for kind in kinds}

    def over() -> bool:
        return all(client.get(job_id).state.terminal for job_id in jobs.values())

    ended = made.tend_until(over, within=_REFERENCE_S, every=0.25)
    found: dict[Kind, Story] = {}
    if ended:
        found = {kind: history.read(client, job_id) for kind, job_id in jobs.items()}
    wrong = [sentence for story in found.values() for sentence in _of_reference(story)]
    if not ended or wrong:
        raise RuntimeError(f"the undisturbed jobs failed: {wrong}\n{made.logs()}")
    return found


def _of_reference(story: Story) -> list[str]:
    return history.violations(story, ends=[JobState.SUCCEEDED], reference=None, damaged=[])


def _report(options: Options, evidence: Evidence, found: Sequence[str]) -> Report:
    deeds, watch = evidence.deeds, evidence.watch
    return Report(
        seed=options.seed,
        minutes=options.minutes,
        database=options.database,
        kills=deeds.kills,
        troubles=deeds.troubles,
        impossible=deeds.impossible,
        recovered=watch.recovered,
        unmeasured=watch.open_wounds,
        ends=Counter(str(errand.state) for errand in evidence.errands),
        attempts=[evidence.client.get(errand.job_id).attempt for errand in evidence.errands],
        looks=watch.looks,
        violations=found,
    )


class _Clock:
    """Says what happens, and when."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)
