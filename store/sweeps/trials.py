"""The trials of sweeps: how their jobs go, what they have measured, and which of a job's rows say so."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
import math
from typing import Any, TypeVar

from pydantic_core import from_json
from sqlalchemy import Row, Text, case, cast, func, insert, null, select, update
from sqlalchemy.orm import Session

from store.db.documents import Parsed, bytes_of, without_traceback
from store.jobs.facts import JobSweepFacts
from store.output import checkpoints, metrics
from store.sweeps.facts import KnownTrials, RungFacts, Standing, TrialFacts
from store.tables import Job, Sweep, SweepTrial
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.errors import NotFound
from torchyard.contract.states import AT_RUNG, JobState
from torchyard.contract.sweeps.spec import MOST_SHOWN_POINT_BYTES
from torchyard.contract.sweeps.views import BestTrial
from torchyard.contract.wire.codec import json_number
from torchyard.contract.wire.text import shown_text

S = TypeVar("S", bound=Standing)

_ENDED = [state for state in JobState if state.terminal]
_RANKED = (SweepTrial.number, SweepTrial.job_id, SweepTrial.outcome, SweepTrial.value, Job.attempt)
_SHOWN = (
    *(*_RANKED, SweepTrial.error, SweepTrial.rungs, Job.state, Job.reason_code, Job.progress),
    cast(without_traceback(Job.error), Parsed).label("job_error"),
)
_PROPOSED_BY = (
    *(*_RANKED, cast(SweepTrial.rungs, Parsed).label("rungs"), Job.state, Job.reason_code),
    cast(Job.progress, Parsed).label("progress"),
    *(null().label(name) for name in ("point", "error", "job_error")),
)
"""What says how a sweep goes on, beside the points: it is read of all trials, of which there may be thousands."""
_AT_RUNGS = (
    *(SweepTrial.number, SweepTrial.job_id, SweepTrial.outcome, SweepTrial.value, Job.state, Job.reason_code),
    cast(SweepTrial.rungs, Text).label("rungs"),
)
_SHORT = case((bytes_of(SweepTrial.point) <= MOST_SHOWN_POINT_BYTES, SweepTrial.point)).label("point")
"""The point as lists have it: null if it is long. All those of a sweep together may take a hundred megabytes."""


def add(session: Session, sweep_id: str, new: Sequence[Mapping[str, Any]]) -> None:
    """Adds the rows of trials: `number` and `point`, and `job_id` or why it was refused."""
    absent = {"job_id": None, "outcome": None, "error": None, "rungs": []}
    session.execute(insert(SweepTrial), [{**absent, **each, "sweep_id": sweep_id} for each in new])


def follow_job(session: Session, job: Job) -> None:
    """Notes how a trial's job has ended or where it waits, and the best that it has measured until then."""
    at_rung = job.state == JobState.PAUSED and job.reason_code == AT_RUNG and job.pause_at is not None
    if not at_rung and not JobState(job.state).terminal:
        return
    policy = job.stored_spec.checkpoint
    value = measure_jobs(session, [job.id], monitor=policy.monitor, mode=policy.mode).get(job.id)
    stored = None if value is None else json_number(value)
    if at_rung:
        rung = {"at": PausePoint.of(job.pause_at or {}).number, "value": stored}
        known = session.scalar(select(SweepTrial.rungs).where(_is_trial_of(job))) or []
        _change_trial(session, job, rungs=[*(each for each in known if each["at"] != rung["at"]), rung])
    else:
        _change_trial(session, job, outcome=job.state, value=stored)


def forget_job(session: Session, job: Job) -> None:
    """Notes that a trial's job is deleted: the trial stays, as it has ended."""
    _change_trial(session, job, job_id=None)


def begin_again(session: Session, sweep_id: str, number: int, job_id: str) -> None:
    """Notes the new job of a trial that had ended."""
    session.execute(
        update(SweepTrial)
        .where(SweepTrial.sweep_id == sweep_id, SweepTrial.number == number)
        .values(job_id=job_id, outcome=None, value=None, error=None),
        execution_options={"synchronize_session": False},
    )


def measure_jobs(session: Session, job_ids: Collection[str], *, monitor: str, mode: str) -> dict[str, float]:
    """Returns the value of each job's best checkpoint, or the newest of the metric if it has saved none with a value.

    NaN for what is not finite. Leaves out jobs that have measured nothing.
    """
    best = checkpoints.find_best_of_jobs(session, dict.fromkeys(job_ids, mode))
    values = {job_id: each.value for job_id, each in best.items()}
    others = [job_id for job_id in job_ids if job_id not in values]
    latest = metrics.read_latest(session, others, keys=[monitor]) if others else {}
    for job_id, its in latest.items():
        if monitor in its:
            values[job_id] = its[monitor] if math.isfinite(its[monitor]) else math.nan
    return values


def read_trials(
    session: Session, sweep: Sweep, *, numbers: Collection[int] | None = None, shown: bool = False
) -> list[TrialFacts]:
    """Returns the trials of a sweep that are made, by number; with `numbers`, only these. `shown`: as lists have them,
    without long points.
    """
    rows, values = _read_columns(session, sweep, (*_SHOWN, _SHORT if shown else SweepTrial.point), numbers)
    return [_facts_of(row, values) for row in rows]


def find(session: Session, sweep: Sweep, number: int) -> TrialFacts:
    """Returns a trial that is made. Raises NotFound."""
    its = read_trials(session, sweep, numbers=[number]) if 0 <= number < sweep.total else []
    if not its:
        raise NotFound(f"sweep {sweep.id} has no trial {number}" + (" yet" if 0 <= number < sweep.total else ""))
    return its[0]


def read_at_rungs(session: Session, sweep: Sweep) -> list[TrialFacts]:
    """Returns the trials of a sweep that are made, by number: states, rungs, and the values of the ended."""
    query = select(*_AT_RUNGS).join(Job, Job.id == SweepTrial.job_id, isouter=True)
    query = query.where(SweepTrial.sweep_id == sweep.id).order_by(SweepTrial.number)
    rows = session.connection().execute(query).all()  # a session would make each row once more
    rungs: list[Any] = from_json(f"[{','.join(row.rungs for row in rows)}]")  # at once, as there may be thousands
    return [
        TrialFacts(
            number=row.number,
            point={},
            point_omitted=True,
            job_id=row.job_id,
            state=JobState(row.outcome or row.state),
            value=_number(row.value),
            rungs=_rungs_of(its),
            at_rung=_waits_at_rung(row),
        )
        for row, its in zip(rows, rungs, strict=True)
    ]


def read_known(session: Session, sweep: Sweep) -> KnownTrials:
    """Returns the trials of a sweep that are made, by number, without their errors: points that were read as text."""
    rows, values = _read_columns(session, sweep, (*_PROPOSED_BY, cast(SweepTrial.point, Text).label("written")), None)
    return lambda count: [
        replace(_facts_of(row, values), point=from_json(row.written), point_omitted=False) for row in rows[:count]
    ]


def read_standings(session: Session, sweep: Sweep) -> list[Standing]:
    """Returns what ranks the trials of a sweep that are made, by number: little of each, as there may be thousands."""
    rows, values = _read_columns(session, sweep, _RANKED, None)
    return [Standing(number=row.number, job_id=row.job_id, value=_value_of(row, values)) for row in rows]


def rank(trials: Iterable[S], *, mode: str) -> list[S]:
    """Returns the trials with the best value first; those without a value last, and equal ones by number."""
    sign = 1 if mode == "min" else -1
    return sorted(trials, key=lambda trial: (not trial.has_value, sign * _finite(trial), trial.number))


def find_best(session: Session, sweep: Sweep) -> BestTrial | None:
    """Returns the best trial of a sweep; None if none has a value."""
    first = next(iter(rank(read_standings(session, sweep), mode=sweep.mode)), None)
    if first is None or not first.has_value:
        return None
    saved = {} if first.job_id is None else checkpoints.find_best_of_jobs(session, {first.job_id: sweep.mode})
    trial = read_trials(session, sweep, numbers=[first.number])[0]
    assert trial.value is not None
    return BestTrial(
        trial=trial.number,
        job_id=trial.job_id,
        value=trial.value,
        point=trial.point,
        checkpoint_id=saved[first.job_id].id if first.job_id in saved else None,
    )


def find_best_job(session: Session, sweep: Sweep) -> str | None:
    """Returns the job of the best trial whose job is there and has saved a checkpoint with a value; None without."""
    trials = [trial for trial in read_standings(session, sweep) if trial.job_id is not None]
    saved = checkpoints.find_best_of_jobs(session, {str(trial.job_id): sweep.mode for trial in trials})
    return next((trial.job_id for trial in rank(trials, mode=sweep.mode) if trial.job_id in saved), None)


def count_by_state(session: Session, sweep_ids: Collection[str]) -> dict[str, dict[JobState, int]]:
    """Returns how many trials of each sweep are in each state."""
    counts: dict[str, dict[JobState, int]] = {sweep_id: {} for sweep_id in sweep_ids}
    ended = select(SweepTrial.sweep_id, SweepTrial.outcome, func.count())
    ended = ended.where(SweepTrial.sweep_id.in_(sweep_ids), SweepTrial.outcome.is_not(None))
    others = select(Job.sweep_id, Job.state, func.count())
    others = others.where(Job.sweep_id.in_(sweep_ids), Job.state.not_in(_ENDED))
    for query in (
        ended.group_by(SweepTrial.sweep_id, SweepTrial.outcome),
        others.group_by(Job.sweep_id, Job.state),
    ):
        for sweep_id, state, count in session.execute(query):
            counts[sweep_id][JobState(state)] = count
    return counts


def read_sweeps_of_jobs(session: Session, rows: Sequence[Any], *, shown: bool = False) -> dict[str, JobSweepFacts]:
    """Returns what a job shows of its sweep, by the jobs' ids, with one statement if any has one. `shown`: as
    lists have it, without long points.
    """
    jobs = {row.id: (row.sweep_id, row.trial) for row in rows if row.sweep_id is not None}
    if not jobs:
        return {}
    point = _SHORT if shown else SweepTrial.point
    query = select(Job.id, Sweep.id, Sweep.name, SweepTrial.number, point)
    query = query.join(Sweep, Sweep.id == Job.sweep_id)
    query = query.join(SweepTrial, (SweepTrial.sweep_id == Job.sweep_id) & (SweepTrial.number == Job.trial))
    return {row[0]: JobSweepFacts(*row[1:]) for row in session.execute(query.where(Job.id.in_(jobs)))}


def _read_columns(
    session: Session, sweep: Sweep, columns: Sequence[Any], numbers: Collection[int] | None
) -> tuple[Sequence[Row[*tuple[Any, ...]]], dict[str, float]]:
    """Returns columns of the trials that are made, and what the jobs that have not ended have measured."""
    query = select(*columns).join(Job, Job.id == SweepTrial.job_id, isouter=True)
    query = query.where(SweepTrial.sweep_id == sweep.id).order_by(SweepTrial.number)
    rows = session.execute(query if numbers is None else query.where(SweepTrial.number.in_(numbers))).all()
    begun = [row.job_id for row in rows if row.outcome is None and row.attempt]
    return rows, measure_jobs(session, begun, monitor=sweep.monitor, mode=sweep.mode) if begun else {}


def _is_trial_of(job: Job) -> Any:
    return (SweepTrial.sweep_id == job.sweep_id) & (SweepTrial.number == job.trial)


def _change_trial(session: Session, job: Job, **values: Any) -> None:
    """Sets columns of the trial, as long as this is its job."""
    change = update(SweepTrial).where(_is_trial_of(job), SweepTrial.job_id == job.id).values(**values)
    session.execute(change, execution_options={"synchronize_session": False})


def _facts_of(row: Row[*tuple[Any, ...]], values: Mapping[str, float]) -> TrialFacts:
    progress = row.progress or {}
    return TrialFacts(
        number=row.number,
        point=row.point or {},
        point_omitted=row.point is None,
        job_id=row.job_id,
        state=JobState(row.outcome or row.state),
        value=_value_of(row, values),
        step=progress.get("step") or 0,
        epoch=progress.get("epoch"),
        rungs=_rungs_of(row.rungs),
        at_rung=_waits_at_rung(row),
        error=_shown_error(row.error or (row.job_error or {}).get("message")),
    )


def _rungs_of(stored: Sequence[Mapping[str, Any]]) -> list[RungFacts]:
    return [RungFacts(rung["at"], _number(rung["value"])) for rung in stored]


def _waits_at_rung(row: Any) -> bool:
    """Returns whether the trial waits at a rung."""
    return row.outcome is None and row.state == JobState.PAUSED and row.reason_code == AT_RUNG


def _value_of(row: Row[*tuple[Any, ...]], values: Mapping[str, float]) -> float | None:
    return _number(row.value) if row.outcome is not None else values.get(row.job_id)


def _shown_error(error: str | None) -> str | None:
    return None if error is None else shown_text(error)


def _number(stored: float | str | None) -> float | None:
    return None if stored is None else float(stored)


def _finite(trial: Standing) -> float:
    return trial.value if trial.value is not None and trial.has_value else 0.0
