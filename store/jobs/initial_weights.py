"""Finds what the `init_from` of a job spec names, for who submits the job, and keeps it from being removed meanwhile.

Who submits must be allowed to read it. Afterwards the job has it, whatever becomes of its source.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.ids import is_id
from store.jobs import initial_files
from store.jobs.initial_weights_facts import InitialFacts
from store.jobs.submission import Submission
from store.models import models
from store.output import checkpoints
from store.sweeps import sweeps
from store.tables import InitialWeights, Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import FieldError, InvalidSpec, NotFound
from torchyard.contract.models.names import ModelRef
from torchyard.contract.spec.initial import AfterRef, CheckpointRef, parse_initial
from torchyard.contract.spec.spec import Spec

_FIELD = "init_from"
_PER_STATEMENT = 1000
"""Jobs that one statement names: a database limits its values."""


def resolve(session: Session, caller: Caller, ref: str) -> InitialFacts:
    """Returns what an `init_from` names now. Raises InvalidSpec for what the caller may not read, or is not there.

    `lock_sources` must have locked the job that it names. A model that it names is not removed meanwhile.
    """
    wanted = parse_initial(ref)
    assert not isinstance(wanted, AfterRef), "it names a checkpoint that is not there yet"
    try:
        if isinstance(wanted, CheckpointRef):
            return _of_checkpoint(session, caller, wanted)
        return _of_model(session, caller, wanted)
    except NotFound as error:
        raise _wrong(error.message) from None


def pinned(session: Session, wanted: Submission) -> Submission:
    """Returns the submission with what its spec names in `init_from`, and with a spec that names exactly that.

    Raises as `resolve` does, and InvalidSpec for a recipe that differs from the one that has saved it.
    """
    spec = wanted.spec
    if spec.init_from is None or spec.later_weights is not None:
        return wanted
    try:
        initial = resolve(session, wanted.caller, spec.init_from)
    except InvalidSpec:
        before = None if wanted.retry_of is None else initial_files.of_job(session, wanted.retry_of)
        if before is None or wanted.goes_on_from is None:
            raise
        initial = replace(before, files=(), size=0)  # it goes on from a checkpoint of its own, and needs them no more
    if spec.trainer not in ("script", initial.trainer):
        raise _wrong(
            f"{spec.init_from} was saved by trainer {initial.trainer}, but this job uses trainer {spec.trainer}"
        )
    return replace(wanted, spec=spec.model_copy(update={"init_from": initial.ref}), initial=initial)


def sources_of(specs: Iterable[Spec]) -> set[str]:
    """Returns the ids of the jobs that specs name in `init_from`."""
    named = (parse_initial(spec.init_from) for spec in specs if spec.init_from is not None)
    return {ref.job_id for ref in named if isinstance(ref, CheckpointRef) and is_id(ref.job_id, "job")}


def lock_sources(session: Session, job_ids: Collection[str]) -> None:
    """Keeps the jobs, and what they have saved, until the transaction ends. Others may do so, too.

    Call it before other rows of jobs are locked: a job is older than those that start from it.
    """
    ids = sorted(job_ids)
    for first in range(0, len(ids), _PER_STATEMENT):
        query = select(Job.id).where(Job.id.in_(ids[first : first + _PER_STATEMENT])).order_by(Job.id)
        session.execute(query.with_for_update(read=True))


def lock_free_sources(session: Session, job_ids: Collection[str]) -> set[str]:
    """Keeps those of the jobs that no other transaction has locked, and what they have saved, until this one ends.

    Returns those that another one has locked.
    """
    if not job_ids:
        return set()
    query = select(Job.id).where(Job.id.in_(job_ids)).order_by(Job.id)
    there = set(session.scalars(query))
    return there - set(session.scalars(query.with_for_update(read=True, skip_locked=True)))


def lock_source_of(session: Session, job_id: str) -> None:
    """Keeps the job from which a stored one has started, and what it has saved, until the transaction ends."""
    source = session.scalar(select(InitialWeights.source_job).where(InitialWeights.job_id == job_id))
    lock_sources(session, () if source is None else (source,))


def _of_checkpoint(session: Session, caller: Caller, wanted: CheckpointRef) -> InitialFacts:
    job_id = sweeps.resolve_job(session, caller, wanted.job_id, wanted.ref)
    if job_id != wanted.job_id:
        lock_sources(session, [job_id])
    job = access.require_job(session, job_id, caller)
    saved = checkpoints.resolve(session, job, wanted.ref)
    return InitialFacts(
        source_job=job.id,
        source_checkpoint=saved.id,
        model_owner=None,
        model_name=None,
        model_version=None,
        trainer=job.trainer,
        step=saved.step,
        epoch=saved.epoch,
        files=saved.files,
        size=sum(file["size"] for file in saved.files),
    )


def _of_model(session: Session, caller: Caller, wanted: ModelRef) -> InitialFacts:
    version = models.find_version(session, wanted.owner, wanted.name, wanted.version, caller=caller, locked=True)
    return InitialFacts(
        source_job=version.job_id if version.shows_job else None,
        source_checkpoint=version.checkpoint_id if version.shows_job else None,
        model_owner=version.owner,
        model_name=version.name,
        model_version=version.version,
        trainer=version.trainer,
        step=version.step,
        epoch=version.epoch,
        files=version.files,
        size=version.size,
    )


def _wrong(message: str) -> InvalidSpec:
    return InvalidSpec("the job spec is not valid", errors=(FieldError(_FIELD, message),))
