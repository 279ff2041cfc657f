"""Runs one chaos test, from an empty folder to the report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
import sys
import time

from tests.chaos import estimates, experiments, faults, job_history, jobs
from tests.chaos.deployment import DatabaseKind, Deployment, deployed
from tests.chaos.evidence import Evidence
from tests.chaos.experiments import Experiments
from tests.chaos.faults import FaultInjector
from tests.chaos.job_history import JobHistory
from tests.chaos.jobs import LAUNCHERS, JobSubmitter, Kind, spec
from tests.chaos.monitor import Monitor
from tests.chaos.report import Report
from torchyard.client import Client
from torchyard.contract.states import JobState

_REFERENCE_S = 240.0
_DRAIN_S = 600.0
_LAST_LOOKS_S = 15.0


@dataclass(frozen=True)
class Options:
    seed: int
    jobs: int
    kills: int
    minutes: float
    database: DatabaseKind
    kinds: Sequence[Kind]
    trials: int
    boxes: bool = False
    """Whether two of the workers have joined from boxes."""
    forks: bool = False
    """Whether programs are forks of a process that has imported them, and ranks those of a warm process."""


def run(folder: Path, options: Options) -> Report:
    """Injects faults into a service in `folder`, undoes them and checks the service. Afterwards nothing of it runs.

    Raises TimeoutError if the service does not start, and unexpected exceptions of the run's threads.
    """
    with (
        deployed(folder, database=options.database, forks=options.forks, boxes=options.boxes) as made,
        made.client() as client,
    ):
        say = _Clock()
        say(f"chaos: seed {options.seed}, {options.kills} kills in {options.minutes:g} min; references first")
        made.receiver.listen(client)
        code = made.code_of(client, {"train.py": jobs.SCRIPT, "trial.py": experiments.SCRIPT})
        references = _references(made, client, options.kinds, code=code)
        beside = Experiments(client, code=code, trials=options.trials)
        beside.begin()
        stream = JobSubmitter(
            made.client(),
            code=code,
            count=options.jobs,
            seed=options.seed,
            kinds=options.kinds,
            launchers=("auto",) if options.forks else LAUNCHERS,
        )
        monitor = Monitor(made.client(patience=0), lambda: [chaos_job.job_id for chaos_job in list(stream.chaos_jobs)])
        planned = faults.plan(seed=options.seed, kills=options.kills, seconds=60 * options.minutes, boxes=options.boxes)
        injector = FaultInjector(made, stream, planned, seed=options.seed, on_kill=monitor.on_kill, say=say)
        threads = (stream, monitor, injector)
        try:
            for thread in threads:
                thread.start()
            made.keep_alive_until(lambda: not injector.is_alive(), within=float("inf"))
            say("healing")
            stream.close()
            drained = made.keep_alive_until(lambda: not stream.is_alive(), within=_DRAIN_S)
            say("drained" if drained else "not drained")
            ended = made.keep_alive_until(beside.over, within=_DRAIN_S, every=1.0)
            say("the sweep and the schedule have ended" if ended else "the sweep or the schedule goes on")
            made.keep_alive_until(lambda: not monitor.unrecovered, within=_LAST_LOOKS_S)
        finally:
            injector.close()
            monitor.close()
            stream.give_up()
            made.keep_alive_until(lambda: not any(thread.is_alive() for thread in threads), within=60)
        for thread in threads:
            if thread.failure is not None:
                raise thread.failure
        evidence = Evidence(
            made,
            client,
            stream.chaos_jobs,
            stream.unexpected_errors,
            references,
            injector.injected,
            monitor,
            beside,
        )
        found = evidence.violations()
        if found:
            print(made.logs(), file=sys.stderr)
        return _report(options, evidence, found)


def _references(made: Deployment, client: Client, kinds: Sequence[Kind], *, code: str) -> dict[Kind, JobHistory]:
    """Runs a job of each kind without faults."""
    begun: dict[Kind, str] = {kind: client.submit(spec(kind, code=code, label="reference")).id for kind in kinds}

    def over() -> bool:
        return all(client.get(job_id).state.terminal for job_id in begun.values())

    ended = made.keep_alive_until(over, within=_REFERENCE_S, every=0.25)
    found: dict[Kind, JobHistory] = {}
    if ended:
        found = {kind: job_history.read(client, job_id) for kind, job_id in begun.items()}
    wrong = [sentence for history in found.values() for sentence in _of_reference(history)]
    if not ended or wrong:
        raise RuntimeError(f"the undisturbed jobs failed: {wrong}\n{made.logs()}")
    return found


def _of_reference(history: JobHistory) -> list[str]:
    return job_history.violations(history, ends=[JobState.SUCCEEDED], reference=None, damaged=[])


def _report(options: Options, evidence: Evidence, found: Sequence[str]) -> Report:
    injected, monitor = evidence.injected, evidence.monitor
    return Report(
        seed=options.seed,
        minutes=options.minutes,
        database=f"{options.database}, two workers in boxes" if options.boxes else options.database,
        kills=injected.kills,
        faults=injected.faults,
        impossible=injected.impossible,
        recovered=monitor.recovered,
        unmeasured=monitor.unrecovered,
        ends=Counter(str(chaos_job.state) for chaos_job in evidence.chaos_jobs),
        attempts=[evidence.client.get(chaos_job.job_id).view.attempt for chaos_job in evidence.chaos_jobs],
        scored=estimates.scored(evidence.deployment),
        polls=monitor.polls,
        violations=found,
    )


class _Clock:
    """Prints messages with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)
