"""Submits jobs: each is resolved, admitted, stored and announced. What was sent is a valid spec already.

`submit` waits for rows that another transaction has locked, `submit_each` does so for several jobs of one caller, and
`store.jobs.shared_commits` for none. Once the rows are locked, all go one way: `submit_locked`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session

from store.announcement import announcement_of
from store.bundles import bundles
from store.cluster import pools, requested
from store.jobs import after, idempotency, initial_weights, jobs, new_jobs, retry, savepoints, show
from store.jobs.idempotency import KeyTaken
from store.jobs.submission import Retry, Submission, Submitted
from store.notifications import targets
from store.store import Store
from store.team import secrets, users
from store.team.limits import find_limits_of
from store.team.quotas import Room
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.errors import FieldError, InvalidSpec, TorchyardError, Unavailable, kept
from torchyard.contract.spec.spec import Spec
from torchyard.contract.team.roles import Resource

T = TypeVar("T")

Limits = Mapping[str, Mapping[Resource, int]]


def submit_alone(store: Store, wanted: Submission | Retry) -> Submitted:
    """Stores a new queued job of the caller in a transaction of its own. Raises Unavailable, and as `submit` does."""
    submitted, positions = in_transaction(store, partial(submit, wanted=wanted), keyed=wanted.keyed is not None)
    return with_position(submitted, positions)


def in_transaction(store: Store, change: Callable[[Session], T], *, keyed: bool) -> tuple[T, Mapping[str, int]]:
    """Returns what the change returns, and the positions of new jobs in the queue, by their ids.

    It takes the store, because it begins again if another transaction has stored a key meanwhile, and because
    positions are known after the commit. `keyed`: whether a request has a key. Raises Unavailable, and what `change`
    does.
    """
    while True:
        try:
            with store.write("submit") as session:
                made = change(session)
                if keyed:
                    idempotency.delete_old(session)
        except KeyTaken:
            continue
        return made, store.positions(announcement_of(session))


def with_position(made: Submitted, positions: Mapping[str, int]) -> Submitted:
    """Returns the job with its position in the queue, if that is known."""
    position = positions.get(made.job.id)
    return made if position is None else Submitted(replace(made.job, in_line=position), made.replayed)


def submit(session: Session, wanted: Submission | Retry) -> Submitted:
    """Stores a new queued job of the caller, or returns that of an earlier request with the same key.

    Raises KeyTaken, QuotaExceeded, IdempotencyMismatch, and InvalidSpec for a secret or a bundle that the caller does
    not have, for GPUs that no worker has, and for what its pool does not have or allow; for a retry also what
    `store.jobs.retry.read` does.
    """
    if wanted.keyed is not None and (known := idempotency.find_job(session, wanted.keyed)) is not None:
        return _replay(session, known)  # before what it names is looked for, which may be gone since
    new = retry.read(session, wanted) if isinstance(wanted, Retry) else wanted
    new = after.resolved(session, new)
    return _submit_one(session, new, _lock(session, [new]))


def submit_each(
    session: Session, wanted: Mapping[int, Submission], *, atomic: bool = False
) -> dict[int, Submitted | Exception]:
    """Stores jobs of one caller. Returns for each, by its index, the job, or the error that `submit` would raise.

    Their positions in the queue are not returned. `atomic`: they may name each other in `after`.
    """
    resolved, errors = after.resolved_together(session, wanted, atomic=atomic)
    outcomes = submit_locked(session, resolved, _lock(session, resolved.values()))
    announcement_of(session).newcomers.clear()
    return {**outcomes, **errors}


def submit_locked(
    session: Session, wanted: Mapping[int, Submission], limits: Limits, *, alone: bool = False
) -> dict[int, Submitted | Exception]:
    """Stores jobs whose sources, users and bundles are locked. Returns for each, by its index, the job or its error.

    All are stored by the same statements. If that fails, each is stored by itself, so that it alone has its error.
    `alone`: the only one needs no savepoint, and its error is raised. Raises Unavailable: then none is stored.
    """
    outcomes, admitted = _admitted(session, wanted, limits, alone=alone)
    store = partial(new_jobs.store_all, session, [*admitted.values()])
    if admitted:
        outcome = store() if alone else savepoints.attempt(session, store)
        if isinstance(outcome, Unavailable):  # each by itself would wait as long again
            raise outcome
        outcomes |= {} if isinstance(outcome, Exception) else dict(zip(admitted, outcome, strict=True))
    for index in sorted(wanted.keys() - outcomes.keys(), key=lambda index: _key_of(wanted[index])):
        outcomes[index] = _by_itself(session, wanted[index], limits)
    return outcomes


def check(session: Session, wanted: Submission) -> Submission:
    """Returns the submission as it would be stored, whatever the quota has room for. Raises as `submit` does."""
    _check_no_schedule(wanted.spec)
    wanted = after.resolved(session, wanted)
    initial_weights.lock_sources(session, initial_weights.sources_of([wanted.spec]))
    return _with_what_it_names(session, _with_pool(session, wanted))


def _submit_one(session: Session, wanted: Submission, limits: Limits) -> Submitted:
    submitted = submit_locked(session, {0: wanted}, limits, alone=True)[0]
    assert isinstance(submitted, Submitted), "the error of one alone is raised"
    return submitted


def _lock(session: Session, wanted: Collection[Submission]) -> Limits:
    """Locks the jobs that submissions start from, their users, if their queued jobs are counted, and bundles.

    Returns the limits of the users.
    """
    initial_weights.lock_sources(session, initial_weights.sources_of(each.spec for each in wanted))
    limits = find_limits_of(session, {each.caller.name for each in wanted})
    for owner in sorted(owner for owner, theirs in limits.items() if Resource.QUEUED in theirs):
        users.lock(session, owner)
    bundles.lock(session, {(each.caller.name, sha256) for each in wanted for sha256 in bundles_of(each.spec).values()})
    return limits


def _admitted(
    session: Session, wanted: Mapping[int, Submission], limits: Limits, *, alone: bool
) -> tuple[dict[int, Submitted | Exception], dict[int, Submission]]:
    """Returns what is known of submissions by now, and those that are to be stored together, as they are stored.

    `alone`: an error is raised.
    """
    stored = idempotency.find_keys(session, [each.keyed for each in wanted.values() if each.keyed is not None])
    outcomes, admitted = dict[int, Submitted | Exception](), dict[int, Submission]()
    room, keys = Room(session, limits), set[tuple[str, str]]()
    for index, each in wanted.items():
        if each.keyed is not None and _key_of(each) in keys:
            continue  # the same key twice: the second is stored after the first, by itself
        keys.add(_key_of(each))
        try:
            if each.keyed is not None and _key_of(each) in stored:
                outcomes[index] = _replay(session, idempotency.job_of(each.keyed, stored[_key_of(each)]))
            else:
                admitted[index] = _admit(session, each, room)
        except TorchyardError as error:
            if alone:
                raise
            outcomes[index] = kept(error)
    return outcomes, admitted


def _admit(session: Session, wanted: Submission, room: Room) -> Submission:
    """Returns the submission with what its pool decides and its `init_from` names, if the quota has room for it."""
    _check_no_schedule(wanted.spec)
    wanted = _with_pool(session, wanted)
    owner, spec = wanted.caller.name, wanted.spec
    room.check(owner, devices=spec.resources.total_devices, priority=spec.priority)
    wanted = _with_what_it_names(session, wanted)
    room.take(owner)
    return wanted


def _check_no_schedule(spec: Spec) -> None:
    if spec.schedule is not None:
        message = "send a job with a schedule alone to POST /v1/schedules"
        raise InvalidSpec("the job spec is not valid", errors=(FieldError("schedule", message),))


def _with_pool(session: Session, wanted: Submission) -> Submission:
    spec = pools.resolved(session, wanted.spec, wanted.caller.name)
    return wanted if spec is wanted.spec else replace(wanted, spec=spec)


def _with_what_it_names(session: Session, wanted: Submission) -> Submission:
    owner, spec = wanted.caller.name, wanted.spec
    requested.check(session, spec.resources)
    secrets.check(session, owner, spec)
    if wanted.trial is None and wanted.run is None and wanted.retry_of is None:
        targets.check(session, owner, spec)  # a target that was removed later stops no trial, run or retry
    bundles.use(session, owner, bundles_of(spec))
    return initial_weights.pinned(session, wanted)


def _replay(session: Session, job_id: str) -> Submitted:
    return Submitted(show.show_job(session, jobs.require(session, job_id)), replayed=True)


def _by_itself(session: Session, wanted: Submission, limits: Limits) -> Submitted | Exception:
    change = partial(_submit_one, session, wanted, limits)
    while isinstance(submitted := savepoints.attempt(session, change), KeyTaken):
        pass
    if isinstance(submitted, Unavailable):
        raise submitted
    return submitted


def _key_of(wanted: Submission) -> tuple[str, str]:
    """Returns the key of the request; none is as that of all that have none."""
    return (wanted.caller.name, "") if wanted.keyed is None else wanted.keyed.identity
