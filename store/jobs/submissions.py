"""Stores submitted jobs: one, or several in one transaction, of which each has its own answer or error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from store.bundles import bundles
from store.cluster import gpus, pools
from store.jobs import (
    after,
    dependencies,
    idempotency,
    initial_files,
    initial_weights,
    jobs,
    new_jobs,
    retry,
    savepoints,
    show,
)
from store.jobs.idempotency import Answer, KeyTaken
from store.jobs.submission_facts import KeyedRequest, NewJob, Retry, Submission, Submitted
from store.notifications import targets
from store.queue import positions as queue_positions
from store.tables import IdempotencyKey
from store.team import audit, quotas, secrets, users
from store.team.quotas import Room
from torchyard.contract.bundles import bundles_of
from torchyard.contract.errors import FieldError, InvalidSpec, TorchyardError, Unavailable, kept
from torchyard.contract.spec import Spec
from torchyard.contract.team import Resource

Outcome = Submitted | Exception | None
"""Of one of several submissions: None if it is to be stored alone."""
Limits = Mapping[str, Mapping[Resource, int]]


def store_one(session: Session, wanted: Submission | Retry, *, limits: Limits | None = None) -> Submitted:
    """Stores the job and the answer for its key, or returns the answer that an earlier request with the key got.

    Raises KeyTaken, and what `store.jobs.submission_writes.submit` does. `limits`: if they are known.
    """
    known = idempotency.find_answer(session, wanted.keyed) if wanted.keyed is not None else None
    if known is not None:
        return _replayed(session, known)
    new, owner = retry.read(session, wanted) if isinstance(wanted, Retry) else wanted, wanted.caller.name
    new = after.resolved(session, new)
    initial_weights.lock_sources(session, initial_weights.sources_of([new.spec]))
    limits = quotas.limits_of_some(session, [owner]) if limits is None else limits
    return _store(session, [_checked_one(session, new, Room(session, limits))])[0]


def store_together(session: Session, wanted: Sequence[Submission | Retry]) -> list[Outcome]:
    """Stores several jobs. Does not wait for rows that another transaction has locked.

    All are stored by the same statements. If that fails, each is stored by itself, so that it alone has its error.
    Raises Unavailable if the database does not answer: then none is stored. One alone needs no savepoint: it raises as
    `store_one` does.
    """
    # Who names jobs in `after` may have to wait for them: alone.
    new = {place: each for place, each in retry.read_free(session, wanted).items() if not each.spec.after}
    limits = quotas.limits_of_some(session, {each.caller.name for each in new.values()})
    free = _lock_free(session, new, limits)
    if len(wanted) == 1:
        return [store_one(session, free[0], limits=limits) if free else None]
    found = store_locked(session, free, limits)
    return [found.get(place) for place in range(len(wanted))]


def store_locked(
    session: Session, wanted: Mapping[int, Submission], limits: Limits
) -> dict[int, Submitted | Exception]:
    """Does what `store_together` does, by place, for submissions whose sources, users and bundles are locked."""
    found: dict[int, Submitted | Exception] = {}
    checked = _checked(session, wanted, limits, found)
    if checked:
        made = savepoints.attempt(session, partial(_store, session, [*checked.values()]))
        if isinstance(made, Unavailable):  # each by itself would wait as long again
            raise made
        found |= {} if isinstance(made, Exception) else dict(zip(checked, made, strict=True))
    for place in sorted(wanted.keys() - found.keys(), key=lambda place: _key(wanted[place])):
        found[place] = _store_alone(session, wanted[place], limits)
    return found


def check(session: Session, wanted: Submission) -> Submission:
    """Returns the submission as it would be stored, whatever the quota has room for. Raises as `store_one` does."""
    _check_no_schedule(wanted.spec)
    wanted = after.resolved(session, wanted)
    initial_weights.lock_sources(session, initial_weights.sources_of([wanted.spec]))
    spec = pools.resolved(session, wanted.spec, wanted.caller.name)
    return _with_what_it_names(session, replace(wanted, spec=spec))


def _lock_free(session: Session, wanted: Mapping[int, Submission], limits: Limits) -> dict[int, Submission]:
    """Locks the jobs they start from, users and bundles, as far as they are free. Returns those that have theirs."""
    sources = {place: initial_weights.sources_of([each.spec]) for place, each in wanted.items()}
    held_sources = initial_weights.lock_free_sources(session, set[str]().union(*sources.values()))
    counted = {name for name, theirs in limits.items() if Resource.QUEUED in theirs}
    held_users = counted - users.lock_free(session, counted) if counted else set[str]()
    named = {
        place: {(each.caller.name, sha256) for sha256 in bundles_of(each.spec).values()}
        for place, each in wanted.items()
    }
    held_bundles = bundles.lock_free(session, set[tuple[str, str]]().union(*named.values()))
    return {
        place: each
        for place, each in wanted.items()
        if each.caller.name not in held_users
        and held_bundles.isdisjoint(named[place])
        and held_sources.isdisjoint(sources[place])
    }


def _checked(
    session: Session, wanted: Mapping[int, Submission], limits: Limits, found: dict[int, Submitted | Exception]
) -> dict[int, Submission]:
    """Returns those of the submissions that may be stored together, as they are stored.

    Adds what is known of others to `found`.
    """
    stored = idempotency.find_answers(session, [each.keyed for each in wanted.values() if each.keyed is not None])
    room, keys = Room(session, limits), set[tuple[str, str]]()
    checked: dict[int, Submission] = {}
    for place, each in wanted.items():
        if each.keyed is not None and _key(each) in keys:
            continue  # the same key twice: the second is stored after the first, by itself
        keys.add(_key(each))
        try:
            known = _known(session, each.keyed, stored)
            if known is not None:
                found[place] = known
                continue
            checked[place] = _checked_one(session, each, room)
        except TorchyardError as error:
            found[place] = kept(error)
    return checked


def _known(
    session: Session, keyed: KeyedRequest | None, stored: Mapping[tuple[str, str], IdempotencyKey]
) -> Submitted | None:
    row = None if keyed is None else stored.get((keyed.owner, keyed.key))
    return None if keyed is None or row is None else _replayed(session, idempotency.answer_of(keyed, row))


def _replayed(session: Session, known: Answer) -> Submitted:
    job = show.of(session, jobs.get(session, known.job_id))
    return Submitted(job, known.status, known.location, replayed=True)


def _checked_one(session: Session, wanted: Submission, room: Room) -> Submission:
    """Returns the submission with what its pool decides and its `init_from` names.

    Raises what `store.jobs.submission_writes.submit` does.
    """
    _check_no_schedule(wanted.spec)
    owner = wanted.caller.name
    spec = pools.resolved(session, wanted.spec, owner)
    room.check(owner, devices=spec.resources.total_devices, priority=spec.priority)
    found = _with_what_it_names(session, replace(wanted, spec=spec))
    room.take(owner)
    return found


def _with_what_it_names(session: Session, wanted: Submission) -> Submission:
    owner, spec = wanted.caller.name, wanted.spec
    gpus.check(session, spec.resources)
    secrets.check(session, owner, spec)
    if wanted.trial is None and wanted.run is None and wanted.retry_of is None:
        targets.check(session, owner, spec)  # a target that was removed later stops no trial, run or retry
    bundles.use(session, owner, bundles_of(spec))
    return initial_weights.pinned(session, wanted)


def _check_no_schedule(spec: Spec) -> None:
    if spec.schedule is not None:
        message = "a job with a schedule is sent alone to POST /v1/schedules, as `torchyard submit` does with one"
        raise InvalidSpec("the job spec is not valid", errors=(FieldError("schedule", message),))


def _store(session: Session, wanted: Sequence[Submission]) -> list[Submitted]:
    stored = new_jobs.submit_all(session, [_new(each) for each in wanted])
    made = [job for job, _ in stored]
    bundles.record_uses(session, {job.id: bundles_of(each.spec) for job, each in zip(made, wanted, strict=True)})
    initial = {job.id: each.initial for job, each in zip(made, wanted, strict=True) if each.initial is not None}
    initial_files.add_all(session, initial)
    dependencies.add_all(session, {job.id: each.after for job, each in zip(made, wanted, strict=True) if each.after})
    best = retry.go_on(session, made, wanted)
    _audit(session, made, wanted)
    told = [
        Submitted(
            show.of_new(
                job,
                why,
                monitor=each.spec.checkpoint.monitor,
                best=best.get(job.id),
                initial=each.initial,
                after=each.after or (),
            ),
            201,
            f"/v1/jobs/{job.id}",
        )
        for (job, why), each in zip(stored, wanted, strict=True)
    ]
    queue_positions.ask_after_commit(session, made)
    answers = [
        (each.keyed, Answer(its.job.id, its.status, its.location))
        for each, its in zip(wanted, told, strict=True)
        if each.keyed is not None
    ]
    if answers:
        idempotency.store_answers(session, answers)
    return told


def _new(wanted: Submission) -> NewJob:
    return NewJob(
        wanted.spec,
        wanted.caller.name,
        wanted.visibility,
        wanted.retry_of,
        wanted.begins_with,
        trial=wanted.trial,
        run=wanted.run,
        job_id=wanted.job_id,
        waits_for=wanted.waits_for,
    )


def _audit(session: Session, made: Sequence[Any], wanted: Sequence[Submission]) -> None:
    both = list(zip(made, wanted, strict=True))
    submitted = [(each.caller, job.id) for job, each in both if each.retry_of is None]
    retried = [(each.caller, f"{each.retry_of} as {job.id}") for job, each in both if each.retry_of is not None]
    for action, done in (("job.submit", submitted), ("job.retry", retried)):
        if done:
            audit.add_all(session, action, done)


def _store_alone(session: Session, wanted: Submission, limits: Limits) -> Submitted | Exception:
    change: Callable[[], Submitted] = partial(store_one, session, wanted, limits=limits)
    while isinstance(made := savepoints.attempt(session, change), KeyTaken):
        pass
    if isinstance(made, Unavailable):
        raise made
    return made


def _key(wanted: Submission) -> tuple[str, str]:
    return (wanted.caller.name, wanted.keyed.key if wanted.keyed is not None else "")
