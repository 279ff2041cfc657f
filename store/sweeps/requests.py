"""What the owner asks of a sweep that is there. Each has its entry of the audit.

All of them raise NotFound, and Forbidden for a sweep that the caller may only read.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from sqlalchemy.orm import Session

from store.jobs import requests as job_requests
from store.jobs import resume
from store.jobs import submit as submissions
from store.jobs.submission import Retry, TrialOf
from store.store import Store
from store.sweeps import listing, sweeps, trials
from store.tables import Sweep
from store.team import audit, users
from store.team.callers import Caller
from store.team.limits import check_change
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.states import CANCELLED_BY_OWNER, Reason
from torchyard.contract.sweeps.spec import SweepState
from torchyard.contract.sweeps.views import SweepView

Action = Literal["pause", "resume", "cancel"]

_PAUSED = Reason("paused", "paused by its owner")
_CANCELLING = Reason("cancelled", CANCELLED_BY_OWNER)


def ask(session: Session, action: Action, sweep_id: str, *, caller: Caller) -> SweepView:
    """Pauses, resumes or cancels a sweep. A controller does so with its jobs. Repeating it changes nothing.

    Raises Conflict if its state forbids that.
    """
    sweep = sweeps.lock(session, sweep_id, caller)
    state = SweepState(sweep.state)
    if state.ended and not (action == "cancel" and state is SweepState.CANCELLED):
        raise Conflict(f"sweep {sweep_id} is {state}: this needs an unfinished sweep")
    if action == "cancel" and not state.ended and state is not SweepState.CANCELLING:
        sweeps.move(session, sweep, SweepState.CANCELLING, reason=_CANCELLING, asked="cancel", asked_to=0)
    elif action == "pause" and state is not SweepState.PAUSED:
        sweeps.move(session, sweep, SweepState.PAUSED, reason=_PAUSED, asked="pause", asked_to=0)
    elif action == "resume" and state is not SweepState.RUNNING:
        sweeps.move(session, sweep, SweepState.RUNNING, reason=sweeps.STARTED, asked="resume", asked_to=0)
    else:  # nothing changes, and it may be sent without end
        check_change(session, caller.name)
    audit.add(session, caller, f"sweep.{action}", sweep_id)
    return listing.describe(session, sweep)


def promote(session: Session, sweep_id: str, number: int, *, caller: Caller) -> None:
    """Has a trial go on that has ended or waits at a rung, from its newest checkpoint.

    Raises Conflict for another one, so that of two requests one does it, and what a submission raises.
    """
    sweep = sweeps.lock(session, sweep_id, caller)
    trial = trials.find(session, sweep, number)
    if sweep.state == SweepState.CANCELLING or sweep.asked is not None:
        raise Conflict(f"sweep {sweep_id} changes the state of its jobs now: try again")
    if trial.job_id is None:
        raise Conflict(f"trial {number} of sweep {sweep_id} has no job to continue")
    if trial.at_rung:
        resume.promote(session, trial.job_id, None, caller)
    elif trial.state.terminal:
        acting, of = users.act_for(session, sweep.owner), TrialOf(sweep_id, number)
        job = submissions.submit(session, Retry(trial.job_id, acting, trial=of))
        trials.begin_again(session, sweep_id, number, job.job.id)
    else:
        raise Conflict(f"trial {number} of sweep {sweep_id} is {trial.state}: it has not ended")
    audit.add(session, caller, "sweep.promote", f"{sweep_id} {number}")


def delete_jobs(store: Store, sweep_id: str, *, caller: Caller) -> Iterator[str]:
    """Deletes the jobs of a sweep that has ended, each in a transaction of its own, and yields the id of each.

    What was deleted stays deleted if it ends early. Raises Conflict if the sweep has not ended, and
    Unavailable.
    """
    with store.write("sweeps") as session:
        _check_ended(session, sweeps.lock(session, sweep_id, caller))
        ids = sweeps.list_jobs(session, sweep_id)
    for job_id in ids:
        with suppress(NotFound), store.write("delete") as session:  # its owner may have deleted it meanwhile
            job_requests.act(session, "delete", job_id, caller=caller)
        yield job_id


def delete(session: Session, sweep_id: str, *, caller: Caller) -> None:
    """Deletes a sweep that has ended. The jobs that it still has stay, as jobs of no sweep. Raises Conflict."""
    sweep = sweeps.lock(session, sweep_id, caller)
    _check_ended(session, sweep)
    sweeps.remove(session, sweep)
    audit.add(session, caller, "sweep.delete", sweep_id)


def _check_ended(session: Session, sweep: Sweep) -> None:
    if not SweepState(sweep.state).ended:
        raise Conflict(f"sweep {sweep.id} is {sweep.state}: cancel it, and delete it when it has finished")
    if sweeps.count_open_trials(session, sweep.id):
        raise Conflict(f"sweep {sweep.id} has trials that were promoted and have not ended: cancel them first")
