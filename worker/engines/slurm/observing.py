"""What an attempt does now, by its files and by what Slurm says of its job: a pure function."""

from collections.abc import Callable
from dataclasses import dataclass

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason
from worker.engines import base
from worker.engines.slurm import ends
from worker.engines.slurm.listing import Job


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known of one attempt at a moment."""

    report: ExitReport | None = None
    fresh: bool = False
    """Whether its coordinator lives, by the heartbeat."""
    ran: bool = False
    """Whether its coordinator has ever started."""
    submitted: bool = False
    """Whether Slurm has said that it has the job."""
    requested: EndReason | None = None
    """The stop that was asked for."""
    job: Job | None = None
    """As Slurm lists it."""
    absent: bool = False
    """Whether Slurm surely has no such job."""
    settled: bool = False
    """Whether it was listed as ended for so long that its report would be seen."""
    problem: str | None = None
    """Why Slurm gives no list."""


def observe(
    facts: Facts, *, running: Callable[[], base.Running], log: Callable[[], str] = lambda: ""
) -> base.Observation:
    """Returns the observation. An attempt has ended only if its report says so, or both Slurm and its heartbeat do.

    `running` counts its ranks; `log` reads what its batch job has written.
    """
    if facts.report is not None:
        return base.Ended(facts.report)
    if facts.fresh:
        state = running()
        return state if state.ranks else base.Waiting("its nodes start the ranks")
    evidence = ends.Evidence(ran=facts.ran, requested=facts.requested)
    if facts.job is None:
        return _unlisted(facts, evidence)
    return _listed(facts, facts.job, evidence, running=running, log=log)


def _unlisted(facts: Facts, evidence: ends.Evidence) -> base.Observation:
    if facts.absent:
        if facts.ran or facts.submitted:
            return base.Ended(ends.gone(evidence))
        return base.Absent()
    if facts.problem is not None:
        return base.Unknown(f"Slurm does not answer: {facts.problem}")
    if facts.ran:
        return base.Unknown("Slurm does not list its job, and its coordinator is silent")
    return base.Waiting("Slurm does not list its job yet")


def _listed(
    facts: Facts,
    job: Job,
    evidence: ends.Evidence,
    *,
    running: Callable[[], base.Running],
    log: Callable[[], str],
) -> base.Observation:
    if not job.known:
        return base.Unknown(f"its job in Slurm is {job.state}")
    if job.ended:
        # One that had no node has left nothing. Of another one, a report may be hidden for a while.
        if facts.settled or (not job.nodes and not facts.ran):
            return base.Ended(ends.report_of(job, ends.Evidence(ran=facts.ran, requested=facts.requested, log=log())))
        return base.Waiting("its job in Slurm has ended; its report is awaited") if not facts.ran else running()
    if not job.queued:
        state = running()
        return state if state.ranks else base.Waiting(f"its job starts on {job.nodes or 'its nodes'}")
    if facts.ran:  # it would only start to leave at once
        return base.Ended(ends.report_of(job, evidence))
    return base.Waiting(job.state if job.reason in {"", "None"} else job.reason, eta=job.expected_start, queued=True)
