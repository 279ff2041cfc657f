"""One action on many jobs: each job in its own transaction, by the command for one job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import ColumnElement, func, or_

from store.commands import requests
from store.db.tables import Job
from store.facts.callers import Caller
from store.facts.jobs import AT_ONCE
from store.ids import is_id
from store.rows import access, listing
from store.store import Store
from torchyard.contract.errors import Conflict, Forbidden, NotFound, QuotaExceeded, TorchyardError
from torchyard.contract.filters import JobFilter
from torchyard.contract.job import JobState
from torchyard.contract.requests import MOST_ACTIONS, JobAction

_ENDED = [state for state in JobState if state.terminal]


@dataclass(frozen=True)
class Refusal:
    """A job on which the action was not done."""

    job_id: str
    error: TorchyardError


@dataclass(frozen=True)
class Result:
    """What an action did."""

    matched: int
    """The number of jobs that were asked for and that the caller may change."""
    done: int
    refused: list[Refusal]
    more: bool
    """Whether further jobs match the filter."""


def act(
    store: Store,
    action: JobAction,
    chosen: Sequence[str] | JobFilter,
    *,
    caller: Caller,
    now: bool = False,
    dry_run: bool = False,
) -> Result:
    """Does the action on the jobs with these ids, or on the first `MOST_ACTIONS` that the filter matches.

    A filter matches only jobs on which the action would do something, so that a repeated call goes on with the rest.
    With `now`, a cancel is forced. With `dry_run`, only finds the jobs: those that the caller may not change are
    refused, states are not looked at.

    Raises Unavailable. What was done before stays done.
    """
    more, forced = False, action == "cancel" and now
    if isinstance(chosen, JobFilter):
        with store.read() as session:
            condition = _concerns(action, now=now)
            found = listing.changeable(session, chosen, condition, caller=caller, limit=MOST_ACTIONS + 1, ending=forced)
        more, ids, refused = len(found) > MOST_ACTIONS, list(found[:MOST_ACTIONS]), list[Refusal]()
    else:
        ids, refused = _known(store, chosen, caller, ending=forced)
    matched = len(ids)
    if dry_run:
        return Result(matched, done=0, refused=refused, more=more)
    command = partial(requests.act, store, action, caller=caller, grace=AT_ONCE if forced else None)
    failed = [refusal for job_id in ids if (refusal := _refusal(command, job_id)) is not None]
    return Result(matched, done=matched - len(failed), refused=refused + failed, more=more)


def _known(store: Store, sent: Sequence[str], caller: Caller, *, ending: bool) -> tuple[list[str], list[Refusal]]:
    """Returns the ids of jobs that the caller may change, each once, and the refusals of the others."""
    known: list[str] = []
    refused: list[Refusal] = []
    with store.read() as session:
        for job_id in dict.fromkeys(sent):
            try:
                if not is_id(job_id, "job"):
                    raise NotFound(f"there is no job {job_id!r}")
                access.check_own(session, job_id, caller, ending=ending)
                known.append(job_id)
            except (NotFound, Forbidden) as error:
                refused.append(Refusal(job_id, error))
    return known, refused


def _refusal(command: Callable[[str], None], job_id: str) -> Refusal | None:
    """Does the action on one job, and returns its refusal, if any. A job may have changed or gone meanwhile."""
    try:
        command(job_id)
    except (NotFound, Forbidden, Conflict, QuotaExceeded) as error:
        return Refusal(job_id, error)
    return None


def _concerns(action: JobAction, *, now: bool) -> ColumnElement[bool]:
    """Returns the condition that the action on a job would do something."""
    if action == "delete":
        return Job.state.in_(_ENDED)
    open_ = Job.state.not_in(_ENDED) & Job.cancel_requested_at.is_(None)
    if action == "cancel":
        return open_ | (Job.state.not_in(_ENDED) & (func.coalesce(Job.cancel_grace_s, 1) > 0)) if now else open_
    if action == "pause":
        return open_ & Job.pause_requested_at.is_(None)
    return open_ & or_(Job.state == JobState.PAUSED, Job.pause_requested_at.is_not(None))
