"""Requests about sweeps. Each is one transaction, with its entry of the audit.

All of them raise Unavailable, and NotFound and Forbidden for a sweep that is there.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from sqlalchemy.orm import Session

from store.jobs import owners, requests, resume, submissions
from store.jobs.idempotency import KeyTaken
from store.jobs.submission_facts import Retry, Submission, TrialOf
from store.store import Store
from store.sweeps import rows as sweeps
from store.sweeps import trials
from store.sweeps.facts import NewSweep, TrialFacts, WholeSweep
from store.tables import Sweep
from store.team import audit, quotas
from store.team.callers_facts import Caller
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.job import CANCELLED_BY_OWNER, Reason
from torchyard.contract.points import extended
from torchyard.contract.spec import Spec
from torchyard.contract.sweeps import SweepExtension, SweepState

Action = Literal["pause", "resume", "cancel"]

_PAUSED = Reason("paused", "paused by its owner")
_CANCELLING = Reason("cancelled", CANCELLED_BY_OWNER)
_NAMES = frozenset({"after", "init_from"})
"""Keys of a job spec whose names mean what they do now, for all trials."""
_EXTENDABLE = (SweepState.RUNNING, SweepState.PAUSED, SweepState.FINISHED)


def submit(store: Store, new: NewSweep, first: Spec) -> tuple[WholeSweep, bool]:
    """Stores a sweep, of which `first` is the job spec of trial 0. Returns it, and whether it was there before.

    It was, if an earlier request with the same key has made it. The weights and jobs that its job spec names in
    `init_from` and `after` are those of this moment for all trials. Raises IdempotencyMismatch, and what
    `store.jobs.submissions.check` does.
    """
    while True:
        try:
            with store.write("sweeps") as session:
                return _submit(session, new, first)
        except KeyTaken:
            continue


def ask(store: Store, action: Action, sweep_id: str, *, caller: Caller) -> WholeSweep:
    """Pauses, resumes or cancels a sweep. A controller does so with its jobs. Repeating it changes nothing.

    Raises Conflict if its state forbids that.
    """
    with store.write("sweeps") as session:
        sweep = sweeps.lock(session, sweep_id, caller)
        state = SweepState(sweep.state)
        if state.ended and not (action == "cancel" and state is SweepState.CANCELLED):
            raise Conflict(f"sweep {sweep_id} is {state}: only one that has not ended can do this")
        if action == "cancel" and not state.ended and state is not SweepState.CANCELLING:
            sweeps.move(session, sweep, SweepState.CANCELLING, reason=_CANCELLING, asked="cancel", asked_to=0)
        elif action == "pause" and state is not SweepState.PAUSED:
            sweeps.move(session, sweep, SweepState.PAUSED, reason=_PAUSED, asked="pause", asked_to=0)
        elif action == "resume" and state is not SweepState.RUNNING:
            sweeps.move(session, sweep, SweepState.RUNNING, reason=sweeps.STARTED, asked="resume", asked_to=0)
        else:  # nothing changes, and it may be sent without end
            quotas.check_change(session, caller.name)
        audit.add(session, caller, f"sweep.{action}", sweep_id)
        return sweeps.whole(session, sweep)


def extend(store: Store, sweep_id: str, more: SweepExtension, *, caller: Caller) -> WholeSweep:
    """Adds trials to a sweep, or changes how many run at once. One that has finished begins again.

    The job specs of points are not looked at: one that is wrong is a failed trial.

    Raises Conflict for one that was cancelled or has failed, InvalidSpec for what cannot be added, and as
    `store.sweeps.rows.check_room` does.
    """
    while True:
        with store.read() as session:
            sweep = sweeps.get(session, sweep_id, caller)
            spec, known = sweeps.spec_of(sweep), sweep.version
        wider = extended(spec, more)
        with store.write("sweeps") as session:
            sweep = sweeps.lock(session, sweep_id, caller)
            if sweep.version != known:
                continue
            if sweep.state not in _EXTENDABLE:
                raise Conflict(f"sweep {sweep_id} is {sweep.state}: it cannot be extended; submit another one")
            sweeps.change(session, sweep, spec=sweeps.document_of(wider), total=wider.size)
            if sweep.total > sweep.next_number:
                quotas.check_written(session, sweep.owner)
            if sweep.state == SweepState.FINISHED and sweep.total > sweep.next_number:
                sweeps.check_room(session, sweep.owner)
                sweeps.move(session, sweep, SweepState.RUNNING, reason=sweeps.STARTED)
            sweeps.wake(session)
            audit.add(session, caller, "sweep.extend", sweep_id)
            return sweeps.whole(session, sweep)


def promote(store: Store, sweep_id: str, number: int, *, caller: Caller) -> TrialFacts:
    """Has a trial go on that has ended or waits at a rung, from its newest checkpoint.

    Raises Conflict for another one, so that of two requests one does it, and what a submission raises.
    """
    with store.write("sweeps") as session:
        sweep = sweeps.lock(session, sweep_id, caller)
        trial = sweeps.trial_of(session, sweep, number)
        if sweep.state == SweepState.CANCELLING or sweep.asked is not None:
            raise Conflict(f"sweep {sweep_id} changes the state of its jobs now: try again")
        if trial.job_id is None:
            raise Conflict(f"trial {number} of sweep {sweep_id} has no job that could go on")
        if trial.at_rung:
            resume.promote(session, trial.job_id, None, caller)
        elif trial.state.terminal:
            acting, of = owners.acting(session, sweep.owner), TrialOf(sweep_id, number)
            made = submissions.store_one(session, Retry(trial.job_id, acting, trial=of))
            trials.begin_again(session, sweep_id, number, made.job.id)
        else:
            raise Conflict(f"trial {number} of sweep {sweep_id} is {trial.state}: it has not ended")
        audit.add(session, caller, "sweep.promote", f"{sweep_id} {number}")
        return sweeps.trial_of(session, sweep, number)


def delete_jobs(store: Store, sweep_id: str, *, caller: Caller) -> Iterator[str]:
    """Deletes the jobs of a sweep that has ended, and yields the id of each.

    What was deleted stays deleted if it ends early. Raises Conflict if the sweep has not ended.
    """
    with store.write("sweeps") as session:
        _check_ended(session, sweeps.lock(session, sweep_id, caller))
        ids = sweeps.jobs_of(session, sweep_id)
    for job_id in ids:
        with suppress(NotFound), store.write("delete") as session:  # its owner may have deleted it meanwhile
            requests.act(session, "delete", job_id, caller=caller)
        yield job_id


def delete(store: Store, sweep_id: str, *, caller: Caller) -> None:
    """Deletes a sweep that has ended. The jobs that it still has stay, as jobs of no sweep. Raises Conflict."""
    with store.write("sweeps") as session:
        sweep = sweeps.lock(session, sweep_id, caller)
        _check_ended(session, sweep)
        sweeps.remove(session, sweep)
        audit.add(session, caller, "sweep.delete", sweep_id)


def _submit(session: Session, new: NewSweep, first: Spec) -> tuple[WholeSweep, bool]:
    known = sweeps.answered(session, new)
    if known is not None:
        return sweeps.whole(session, known), True
    checked = submissions.check(session, Submission(first, new.caller, new.visibility))
    spec = new.spec
    named = checked.spec.model_dump(mode="json", include={*_NAMES.intersection(spec.job)})
    spec = spec.model_copy(update={"job": {**spec.job, **named}})
    sweep = sweeps.add(session, replace(new, spec=spec))
    audit.add(session, new.caller, "sweep.submit", sweep.id)
    return sweeps.whole(session, sweep), False


def _check_ended(session: Session, sweep: Sweep) -> None:
    if not SweepState(sweep.state).ended:
        raise Conflict(f"sweep {sweep.id} is {sweep.state}: cancel it first and delete it after its end")
    if sweeps.open_trials(session, sweep.id):
        raise Conflict(f"sweep {sweep.id} has trials that were promoted and have not ended: cancel them first")
