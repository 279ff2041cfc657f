"""One action on many jobs: each job in its own transaction, as the action on one job."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
import time

from sqlalchemy import ColumnElement, func, or_

from store.attempts import prices
from store.attempts.facts import StopPrice
from store.jobs import edits, listing, requests, stars
from store.jobs.facts import AT_ONCE
from store.store import Store
from store.tables import Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound, QuotaExceeded, TorchyardError
from torchyard.contract.jobs.filters import JobFilter
from torchyard.contract.jobs.requests import MOST_ACTIONS, JobAction
from torchyard.contract.states import JobState

_PART_S = 0.02
"""After so long of changing jobs, others have a turn."""
_ENDED = [state for state in JobState if state.terminal]
_STARS = frozenset({"star", "unstar"})
"""Actions that need no more than to read a job."""
_STOPS = frozenset({"cancel", "pause"})
_CHANGES = _STARS | {"archive", "unarchive", "label"}
"""Actions whose transactions have the purpose `change`."""


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
    prices: Sequence[StopPrice] | None = None
    """Of those of the jobs that run, what a cancel or a pause that was not done would cost, the highest first."""


def act(
    store: Store,
    action: JobAction,
    chosen: Sequence[str] | JobFilter,
    *,
    caller: Caller,
    now: bool = False,
    labels: Mapping[str, str | None] | None = None,
    dry_run: bool = False,
) -> Generator[None, None, Result]:
    """Does the action on the jobs with these ids, or on the first `MOST_ACTIONS` that the filter matches.

    A filter matches only jobs on which the action would do something, so that a repeated call goes on with the rest.
    With `now`, a cancel is forced. `labels`: those to set, or with None to remove. With `dry_run`, only finds the jobs
    and what their stop would cost: those that the caller may not change are refused, states are not looked at.

    It opens the transactions itself: one reads, and each job has one of its own, so that what was done before an error
    stays done. It yields when others should have a turn. Raises Unavailable.
    """
    more, forced = False, action == "cancel" and now
    if isinstance(chosen, JobFilter):
        where = chosen.model_copy(update={"archived": True}) if action == "unarchive" else chosen
        conditions = (
            _is_allowed(action, caller, ending=forced),
            _concerns(action, caller, now=now, labels=labels or {}),
        )
        with store.read() as session:
            matching = listing.choose_ids(session, where, *conditions, caller=caller, limit=MOST_ACTIONS + 1)
        more, ids, refused = len(matching) > MOST_ACTIONS, list(matching[:MOST_ACTIONS]), list[Refusal]()
    else:
        ids, refused = _find_allowed(store, chosen, caller, action, ending=forced)
    matched = len(ids)
    if dry_run:
        return Result(matched, 0, refused, more, prices=_price_stops(store, action, ids, forced=forced))
    failed, began = list[Refusal](), time.monotonic()
    for job_id in ids:
        if (refusal := _act_on_one(store, action, job_id, caller, forced=forced, labels=labels)) is not None:
            failed.append(refusal)
        if time.monotonic() - began > _PART_S:
            yield
            began = time.monotonic()
    return Result(matched, done=matched - len(failed), refused=refused + failed, more=more)


def _price_stops(store: Store, action: JobAction, ids: Sequence[str], *, forced: bool) -> Sequence[StopPrice] | None:
    if action not in _STOPS:
        return None
    with store.read() as session:
        return prices.price_jobs(session, ids, now=forced)


def _is_allowed(action: JobAction, caller: Caller, *, ending: bool) -> ColumnElement[bool]:
    """Returns the condition that the caller may do the action on a job."""
    return access.match_readable(caller) if action in _STARS else access.changeable(caller, ending=ending)


def _find_allowed(
    store: Store, sent: Sequence[str], caller: Caller, action: JobAction, *, ending: bool
) -> tuple[list[str], list[Refusal]]:
    """Returns the ids of jobs on which the caller may do the action, each once, and the refusals of the others."""
    asked = [*dict.fromkeys(sent)]
    with store.read() as session:
        errors = access.refusals(session, asked, caller, reads=action in _STARS, ending=ending)
    refused = [Refusal(job_id, errors[job_id]) for job_id in asked if job_id in errors]
    return [job_id for job_id in asked if job_id not in errors], refused


def _act_on_one(
    store: Store,
    action: JobAction,
    job_id: str,
    caller: Caller,
    *,
    forced: bool,
    labels: Mapping[str, str | None] | None,
) -> Refusal | None:
    """Does the action on one job, and returns its refusal, if any. A job may have changed or gone meanwhile."""
    grace = AT_ONCE if forced else None
    try:
        with store.write("change" if action in _CHANGES else action) as session:
            requests.act(session, action, job_id, caller=caller, grace=grace, labels=labels)
    except (NotFound, Forbidden, Conflict, QuotaExceeded) as error:
        return Refusal(job_id, error)
    return None


def _concerns(action: JobAction, caller: Caller, *, now: bool, labels: Mapping[str, str | None]) -> ColumnElement[bool]:
    """Returns the condition that the action on a job would do something."""
    if action in {"delete", "archive", "unarchive"}:
        return Job.state.in_(_ENDED)
    if action in _STARS:
        starred = stars.is_starred(caller)
        return ~starred if action == "star" else starred
    if action == "label":
        return edits.is_labelled_otherwise(labels)
    open_ = Job.state.not_in(_ENDED) & Job.cancel_requested_at.is_(None)
    if action == "cancel":
        return open_ | (Job.state.not_in(_ENDED) & (func.coalesce(Job.cancel_grace_s, 1) > 0)) if now else open_
    if action == "pause":
        return open_ & Job.pause_requested_at.is_(None)
    return open_ & or_(Job.state == JobState.PAUSED, Job.pause_requested_at.is_not(None))
