"""The trials of sweeps: how their jobs go, what they have measured, and which of a job's rows say so."""

from collections.abc import Collection, Iterable, Mapping, Sequence
import math
from typing import Any

from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.orm import Session

from store.db.tables import Job, Sweep, SweepTrial
from store.facts.jobs import JobSweepFacts
from store.facts.sweeps import BestFacts, RungFacts, TrialFacts
from store.rows import checkpoints, metrics
from torchyard.contract.codec import json_number
from torchyard.contract.job import AT_RUNG, JobState
from torchyard.contract.pausing import PausePoint

_ENDED = [state for state in JobState if state.terminal]
_TOLD = (
    *(SweepTrial.number, SweepTrial.point, SweepTrial.job_id, SweepTrial.outcome, SweepTrial.value),
    *(SweepTrial.error, SweepTrial.rungs, Job.state, Job.reason_code, Job.progress, Job.attempt),
    Job.error.label("job_error"),
)


def add(session: Session, sweep_id: str, new: Sequence[Mapping[str, Any]]) -> None:
    """Adds the rows of trials: `number` and `point`, and `job_id` or why it was refused."""
    absent = {"job_id": None, "outcome": None, "error": None, "rungs": []}
    session.execute(insert(SweepTrial), [{**absent, **each, "sweep_id": sweep_id} for each in new])


def follow(session: Session, job: Job) -> None:
    """Notes how a trial's job has ended or where it waits, and the best that it has measured until then."""
    at_rung = job.state == JobState.PAUSED and job.reason_code == AT_RUNG and job.pause_at is not None
    if not at_rung and not JobState(job.state).terminal:
        return
    policy = job.stored_spec.checkpoint
    value = measured(session, [job.id], monitor=policy.monitor, mode=policy.mode).get(job.id)
    stored = None if value is None else json_number(value)
    if at_rung:
        rung = {"at": PausePoint.of(job.pause_at or {}).number, "value": stored}
        known = session.scalar(select(SweepTrial.rungs).where(_of(job))) or []
        _change(session, job, rungs=[*(each for each in known if each["at"] != rung["at"]), rung])
    else:
        _change(session, job, outcome=job.state, value=stored)


def forget(session: Session, job: Job) -> None:
    """Notes that a trial's job is deleted: the trial stays, as it has ended."""
    _change(session, job, job_id=None)


def begin_again(session: Session, sweep_id: str, number: int, job_id: str) -> None:
    """Notes the new job of a trial that had ended."""
    session.execute(
        update(SweepTrial)
        .where(SweepTrial.sweep_id == sweep_id, SweepTrial.number == number)
        .values(job_id=job_id, outcome=None, value=None, error=None),
        execution_options={"synchronize_session": False},
    )


def measured(session: Session, job_ids: Collection[str], *, monitor: str, mode: str) -> dict[str, float]:
    """Returns the value of each job's best checkpoint, or the newest of the metric if it has saved none with a value.

    NaN for what is not finite. Leaves out jobs that have measured nothing.
    """
    best = checkpoints.best_of_jobs(session, dict.fromkeys(job_ids, mode))
    found = {job_id: each.value for job_id, each in best.items()}
    others = [job_id for job_id in job_ids if job_id not in found]
    latest = metrics.latest(session, others, keys=[monitor]) if others else {}
    for job_id, its in latest.items():
        if monitor in its:
            found[job_id] = its[monitor] if math.isfinite(its[monitor]) else math.nan
    return found


def of_sweep(session: Session, sweep: Sweep, *, numbers: Collection[int] | None = None) -> list[TrialFacts]:
    """Returns the trials of a sweep that are made, by number; with `numbers`, only these."""
    query = select(*_TOLD).join(Job, Job.id == SweepTrial.job_id, isouter=True)
    query = query.where(SweepTrial.sweep_id == sweep.id).order_by(SweepTrial.number)
    rows = session.execute(query if numbers is None else query.where(SweepTrial.number.in_(numbers))).all()
    begun = [row.job_id for row in rows if row.outcome is None and row.attempt]
    values = measured(session, begun, monitor=sweep.monitor, mode=sweep.mode) if begun else {}
    return [_facts(row, values) for row in rows]


def ranked(trials: Iterable[TrialFacts], *, mode: str) -> list[TrialFacts]:
    """Returns the trials with the best value first; those without a value last, and equal ones by number."""
    sign = 1 if mode == "min" else -1
    return sorted(trials, key=lambda trial: (not trial.has_value, sign * _finite(trial), trial.number))


def best(session: Session, sweep: Sweep) -> BestFacts | None:
    """Returns the best trial of a sweep; None if none has a value."""
    first = next(iter(ranked(of_sweep(session, sweep), mode=sweep.mode)), None)
    if first is None or not first.has_value:
        return None
    saved = {} if first.job_id is None else checkpoints.best_of_jobs(session, {first.job_id: sweep.mode})
    return BestFacts(first, saved[first.job_id].id if first.job_id in saved else None)


def best_job(session: Session, sweep: Sweep) -> str | None:
    """Returns the job of the best trial whose job is there and has saved a checkpoint with a value; None without."""
    trials = [trial for trial in of_sweep(session, sweep) if trial.job_id is not None]
    saved = checkpoints.best_of_jobs(session, {str(trial.job_id): sweep.mode for trial in trials})
    return next((trial.job_id for trial in ranked(trials, mode=sweep.mode) if trial.job_id in saved), None)


def counts(session: Session, sweep_ids: Collection[str]) -> dict[str, dict[JobState, int]]:
    """Returns how many trials of each sweep are in each state."""
    found: dict[str, dict[JobState, int]] = {sweep_id: {} for sweep_id in sweep_ids}
    ended = select(SweepTrial.sweep_id, SweepTrial.outcome, func.count())
    ended = ended.where(SweepTrial.sweep_id.in_(sweep_ids), SweepTrial.outcome.is_not(None))
    others = select(Job.sweep_id, Job.state, func.count())
    others = others.where(Job.sweep_id.in_(sweep_ids), Job.state.not_in(_ENDED))
    for query in (
        ended.group_by(SweepTrial.sweep_id, SweepTrial.outcome),
        others.group_by(Job.sweep_id, Job.state),
    ):
        for sweep_id, state, count in session.execute(query):
            found[sweep_id][JobState(state)] = count
    return found


def of_jobs(session: Session, rows: Sequence[Any]) -> dict[str, JobSweepFacts]:
    """Returns what is told of the sweeps of jobs, by the jobs' ids, with one statement if any has one."""
    jobs = {row.id: (row.sweep_id, row.trial) for row in rows if row.sweep_id is not None}
    if not jobs:
        return {}
    query = select(Job.id, Sweep.id, Sweep.name, SweepTrial.number, SweepTrial.point)
    query = query.join(Sweep, Sweep.id == Job.sweep_id)
    query = query.join(SweepTrial, (SweepTrial.sweep_id == Job.sweep_id) & (SweepTrial.number == Job.trial))
    return {row[0]: JobSweepFacts(*row[1:]) for row in session.execute(query.where(Job.id.in_(jobs)))}


def _of(job: Job) -> Any:
    return (SweepTrial.sweep_id == job.sweep_id) & (SweepTrial.number == job.trial)


def _change(session: Session, job: Job, **values: Any) -> None:
    """Sets columns of the trial, as long as this is its job."""
    change = update(SweepTrial).where(_of(job), SweepTrial.job_id == job.id).values(**values)
    session.execute(change, execution_options={"synchronize_session": False})


def _facts(row: Row[*tuple[Any, ...]], values: Mapping[str, float]) -> TrialFacts:
    progress = row.progress or {}
    waits = row.outcome is None and row.state == JobState.PAUSED and row.reason_code == AT_RUNG
    return TrialFacts(
        number=row.number,
        point=row.point,
        job_id=row.job_id,
        state=JobState(row.outcome or row.state),
        value=_number(row.value) if row.outcome is not None else values.get(row.job_id),
        step=progress.get("step") or 0,
        epoch=progress.get("epoch"),
        rungs=[RungFacts(rung["at"], _number(rung["value"])) for rung in row.rungs],
        at_rung=waits,
        error=row.error or (row.job_error or {}).get("message"),
    )


def _number(stored: float | str | None) -> float | None:
    return None if stored is None else float(stored)


def _finite(trial: TrialFacts) -> float:
    return trial.value if trial.value is not None and trial.has_value else 0.0
