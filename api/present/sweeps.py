"""The views of sweeps and of their trials."""

from typing import Any, Literal, cast

from api.present.times import time, time_or_none
from store.sweeps.facts import BestFacts, SweepFacts, TrialFacts, WholeSweep
from torchyard.contract.job import JobState
from torchyard.contract.views.sweeps import (
    BestTrial,
    SweepReason,
    SweepSummary,
    SweepView,
    TrialCounts,
    TrialView,
)


def summary(facts: SweepFacts) -> SweepSummary:
    """Returns the view of a sweep, as lists show it."""
    return SweepSummary(**_values(facts))


def sweep(found: WholeSweep) -> SweepView:
    """Returns the view of a sweep."""
    return SweepView(**_values(found.facts), spec=found.spec, best=None if found.best is None else _best(found.best))


def trial(facts: TrialFacts, rank: int | None) -> TrialView:
    """Returns the view of a trial."""
    return TrialView(
        number=facts.number,
        job_id=facts.job_id,
        state=facts.state,
        point=facts.point,
        point_omitted=facts.point_omitted or None,
        value=facts.value,
        step=facts.step,
        epoch=facts.epoch,
        rank=rank,
        rung=len(facts.rungs) or None,
        error=facts.error,
    )


def _values(facts: SweepFacts) -> dict[str, Any]:
    reason = SweepReason(code=facts.reason_code, message=facts.reason_message, since=time(facts.reason_since))
    return {
        "id": facts.id,
        "name": facts.name,
        "state": facts.state,
        "status_reason": reason,
        "owner": facts.owner,
        "visibility": facts.visibility,
        "method": facts.method,
        "monitor": facts.monitor,
        "mode": cast("Literal['min', 'max']", facts.mode),
        "max_parallel": facts.max_parallel,
        "trials": _counts(facts),
        "created_at": time(facts.created_at),
        "finished_at": time_or_none(facts.finished_at),
        "version": facts.version,
    }


def _counts(facts: SweepFacts) -> TrialCounts:
    counted = facts.counts
    told = {state.value: count for state, count in counted.items() if state is not JobState.STARTING}
    told["running"] = told.get("running", 0) + counted.get(JobState.STARTING, 0)
    return TrialCounts(total=facts.total, waiting=facts.total - sum(counted.values()), **told)


def _best(facts: BestFacts) -> BestTrial:
    assert facts.trial.value is not None
    return BestTrial(
        trial=facts.trial.number,
        job_id=facts.trial.job_id,
        value=facts.trial.value,
        point=facts.trial.point,
        checkpoint_id=facts.checkpoint_id,
    )
