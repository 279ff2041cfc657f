"""Runs one chaos test of a pool, from an empty folder to the report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
import os
from pathlib import Path
import sys
import time

from tests.chaos import job_history
from tests.chaos.job_history import JobHistory
from tests.slurm.chaos.faults import Injector
from tests.slurm.chaos.watch import Watch
from tests.slurm.chaos.wrappers import Wrappers
from tests.slurm.lab import SlurmLab
from tests.slurm.service import PoolService, running
from torchyard.contract.states import JobState

NODES = 3
_DRAINED = timedelta(minutes=15)
_SCRIPT = """
import os, time, torchyard

run = torchyard.init()
state = run.resume() or {"step": 0, "value": 0.3}
step, value = state["step"], state["value"]
while step < 100:
    time.sleep(0.1)
    step += 1
    value = 3.9 * value * (1 - value)
    run.log({"train/value": value}, step=step)
    stop = run.should_stop()
    if step % 10 == 0 or stop:
        run.save_checkpoint({"step": step, "value": value}, step=step)
    if stop:
        break
"""


@dataclass(frozen=True)
class Report:
    seed: int
    faults: Mapping[str, int]
    ends: Mapping[str, int]
    attempts: Sequence[int]
    looks: int
    seconds: float
    violations: Sequence[str]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        ends = ", ".join(f"{count} {state}" for state, count in sorted(self.ends.items()))
        return "\n".join(
            [
                f"chaos of a pool: seed {self.seed}, {self.seconds:.0f} s",
                f"faults: {sum(self.faults.values())} ({counts})",
                f"jobs: {sum(self.ends.values())} ({ends}); attempts: {sum(self.attempts)}",
                f"looks at all processes: {self.looks}",
                f"violations: {len(self.violations)}",
                *(f"  {violation}" for violation in self.violations),
            ]
        )


def run(folder: Path, *, seed: int, faults: int, jobs: int) -> Report:
    """Injects faults while jobs of two nodes run, undoes them, and checks what is left. Afterwards nothing runs."""
    say, began = _Clock(), time.monotonic()
    wrappers = Wrappers(folder / "bin")
    path = f"{wrappers.folder}:{os.environ['PATH']}"
    with SlurmLab(folder, nodes=NODES, gpus=0) as lab, running(lab, env={"PATH": path}) as service:
        reference = _reference(service)
        say(f"seed {seed}: {faults} faults, {jobs} jobs")
        submitted = [_submit(service, number) for number in range(jobs)]
        watch = Watch()
        injector = Injector(service, wrappers, seed, faults, say)
        for thread in (watch, injector):
            thread.start()
        try:
            service.until(lambda: not injector.is_alive(), what="the faults are over", within=_DRAINED)
            say("healing")
            service.until(lambda: _all_over(service, submitted), what="all jobs are over", within=_DRAINED)
            say("all jobs are over")
            service.until(service.idle, what="nothing is left in Slurm and on the nodes", within=_DRAINED)
        finally:
            injector.close()
            watch.close()
        for thread in (injector, watch):
            if thread.failure is not None:
                raise thread.failure
        return _report(service, injector, watch, submitted, reference, seconds=time.monotonic() - began)


def _submit(service: PoolService, number: int) -> str:
    return service.submit_script(f"chaos-{number}", _SCRIPT, max_restarts=1000, stall_timeout="5m").id


def _reference(service: PoolService) -> JobHistory:
    """Runs the same job without a fault."""
    job_id = _submit(service, 0)
    service.wait(job_id, JobState.SUCCEEDED)
    with service.client() as client:
        return job_history.read(client, job_id)


def _all_over(service: PoolService, job_ids: Sequence[str]) -> bool:
    with service.client() as client:
        return all(client.get(job_id).state.terminal for job_id in job_ids)


def _report(
    service: PoolService,
    injector: Injector,
    watch: Watch,
    job_ids: Sequence[str],
    reference: JobHistory,
    *,
    seconds: float,
) -> Report:
    with service.client() as client:
        histories = [job_history.read(client, job_id) for job_id in job_ids]
        listed = Counter(job.id for job in client.jobs.list())
    found = sorted(watch.doubled)
    for history in histories:
        found += job_history.violations(history, ends=[JobState.SUCCEEDED], reference=reference, damaged=[])
    lost = Counter([*job_ids, reference.job.id]) - listed
    found += [f"{job_id}: was accepted and is not listed" for job_id in lost]
    return Report(
        seed=injector.seed,
        faults=injector.injected,
        ends=Counter(str(history.job.state) for history in histories),
        attempts=[history.job.attempt for history in histories],
        looks=watch.looks,
        seconds=seconds,
        violations=found,
    )


class _Clock:
    """Prints messages with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr, flush=True)
