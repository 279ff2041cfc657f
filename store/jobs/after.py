"""Finds what the `after` of a job spec names, for who submits the job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from store.ids import is_id
from store.jobs import dependencies, initial_weights
from store.jobs.beside import Beside, Known, wrong
from store.jobs.facts import DependencyFacts
from store.jobs.submission import Submission
from store.tables import Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import FieldError, InvalidSpec, kept
from torchyard.contract.spec.after import After, is_failed, is_met, unmet
from torchyard.contract.spec.initial import AfterRef
from torchyard.contract.spec.spec import Spec
from torchyard.contract.states import JobState, Reason

_COLUMNS = (Job.id, Job.name, Job.state, Job.trainer, Job.visibility)
_PER_STATEMENT = 1000


def resolved(session: Session, wanted: Submission) -> Submission:
    """Returns the submission with what its spec names in `after`, with ids in the spec, and with why it waits.

    If all of those have ended as they must, it waits for none of them. Of what a retry names, what has ended counts no
    more. Raises InvalidSpec. What it names is kept until the transaction ends: call it before other rows are locked.
    """
    resolutions, errors = resolved_together(session, {0: wanted})
    if errors:
        raise errors[0]
    return resolutions[0]


def resolved_together(
    session: Session, wanted: Mapping[int, Submission], *, atomic: bool = False
) -> tuple[dict[int, Submission], dict[int, InvalidSpec]]:
    """Resolves what submissions of one caller name in `after`. Returns those that have no error, and the errors.

    `atomic`: all of them are stored, or none, so they may name each other; `store.jobs.cycles` finds none in them.
    """
    asked = {index: each for index, each in wanted.items() if each.spec.after and each.after is None}
    if not asked:
        return dict(wanted), {}
    beside = Beside(wanted if atomic or len(wanted) > 1 else {}, atomic=atomic)
    lookup = _Dependencies(session, next(iter(asked.values())).caller, beside)
    named, errors = dict[int, list[str]](), dict[int, InvalidSpec]()
    for index, each in asked.items():
        try:
            named[index] = lookup.ids(each.spec.after)
        except InvalidSpec as error:
            errors[index] = kept(error)
    stored = set[str]().union(*named.values()) - beside.ids
    initial_weights.lock_sources(session, stored | initial_weights.sources_of(each.spec for each in wanted.values()))
    known = lookup.jobs(stored)
    checked = {index: beside.with_id(index, each) for index, each in wanted.items() if index not in errors}
    for index, ids in named.items():
        try:
            check = _checked if wanted[index].retry_of is None else _retried
            checked[index] = check(checked[index], ids, known)
        except InvalidSpec as error:
            errors[index] = kept(error)
    return {index: each for index, each in checked.items() if index not in errors}, errors


def checked(session: Session, wanted: Submission) -> Submission:
    """Returns what `resolved` would; nothing is locked. Raises InvalidSpec."""
    if not wanted.spec.after:
        return wanted
    lookup = _Dependencies(session, wanted.caller, Beside({}))
    named = lookup.ids(wanted.spec.after)
    return _checked(wanted, named, lookup.jobs(named))


class _Dependencies:
    """Finds jobs for who submits others."""

    def __init__(self, session: Session, caller: Caller, beside: Beside) -> None:
        self._session = session
        self._caller = caller
        self._beside = beside
        self._named: dict[str, str | None] = {}

    def ids(self, after: Sequence[After]) -> list[str]:
        """Returns the ids of the named jobs. Raises InvalidSpec for a name that no job has, and for one job twice."""
        ids: list[str] = []
        for number, each in enumerate(after):
            job_id = self._beside.id_of(number, each.job) or self._id(each.job)
            if job_id is None:
                raise wrong(number, f"there is no job {each.job}")
            if job_id in ids:
                raise wrong(number, f"{each.job} is named twice")
            ids.append(job_id)
        return ids

    def jobs(self, job_ids: Iterable[str]) -> dict[str, Known]:
        """Returns those of the jobs that the caller may read, and those beside."""
        ids, jobs_by_id = sorted(job_ids), self._beside.known()
        for first in range(0, len(ids), _PER_STATEMENT):
            some = Job.id.in_(ids[first : first + _PER_STATEMENT])
            rows = self._session.execute(select(*_COLUMNS).where(some, access.match_readable(self._caller)))
            jobs_by_id |= {
                row.id: Known(row.id, row.name, JobState(row.state), row.trainer, row.visibility) for row in rows
            }
        return jobs_by_id

    def _id(self, named: str) -> str | None:
        if is_id(named, "job"):
            return named
        if named not in self._named:
            # Their own first: nobody else's job is taken for one of theirs because it has its name.
            mine, theirs = Job.owner == self._caller.name, access.match_readable(self._caller)
            self._named[named] = self._newest(named, mine) or self._newest(named, theirs)
        return self._named[named]

    def _newest(self, name: str, condition: ColumnElement[bool]) -> str | None:
        query = select(Job.id).where(Job.name == name, condition).order_by(Job.id.desc()).limit(1)
        return self._session.scalar(query)


def _checked(wanted: Submission, named: Sequence[str], known: Mapping[str, Known]) -> Submission:
    spec = wanted.spec
    for number, (each, job_id) in enumerate(zip(spec.after, named, strict=True)):
        if job_id not in known:
            raise wrong(number, f"there is no job {each.job}")
        if is_failed(each.on, known[job_id].state):
            raise wrong(number, unmet(each.job, each.on, known[job_id].state))
    after = [After(job=job_id, on=each.on) for each, job_id in zip(spec.after, named, strict=True)]
    ref = spec.later_weights
    source = None if ref is None else _source(spec, ref, named, known)
    waits = not all(is_met(each.on, known[each.job].state) for each in after)
    weights = {}
    if ref is not None:
        weights = {"init_from": str(AfterRef(str(source), ref.ref)) if waits else f"{source}/{ref.ref}"}
    return replace(
        wanted,
        spec=spec.model_copy(update={"after": after, **weights}),
        after=tuple(DependencyFacts(each.job, known[each.job].name, each.on, known[each.job].state) for each in after),
        waits_for=_reason(wanted, [known[job_id] for job_id in named]) if waits else None,
    )


def _retried(wanted: Submission, named: Sequence[str], known: Mapping[str, Known]) -> Submission:
    """Returns the submission without what has ended, or is not there any more."""
    kept = [each for each, job_id in zip(wanted.spec.after, named, strict=True) if _is_open(known.get(job_id))]
    changes: dict[str, object] = {"after": kept}
    ref = wanted.spec.later_weights
    if ref is not None and not any(each.job == ref.job for each in kept):
        changes["init_from"] = f"{ref.job}/{ref.ref}"
    left = replace(wanted, spec=wanted.spec.model_copy(update=changes), after=None if kept else ())
    return _checked(left, [each.job for each in kept], known) if kept else left


def _is_open(known: Known | None) -> bool:
    return known is not None and not known.state.terminal


def _source(spec: Spec, ref: AfterRef, named: Sequence[str], known: Mapping[str, Known]) -> str:
    """Returns the id of the job in `after` that the spec's `init_from` names by its id or its name."""
    ids = dict(zip((each.job for each in spec.after), named, strict=True))
    sources = [ids[ref.job]] if ref.job in ids else [id for id in named if ref.job in (id, known[id].name)]
    if len(sources) != 1:
        raise _wrong_weights(
            f"{ref}: {'several jobs' if sources else 'no job'} in `after` {'have' if sources else 'has'} that name"
        )
    trainer = known[sources[0]].trainer
    if spec.trainer not in ("script", trainer):
        raise _wrong_weights(f"{ref} will be saved by trainer {trainer}, but this job uses trainer {spec.trainer}")
    return sources[0]


def _wrong_weights(message: str) -> InvalidSpec:
    return InvalidSpec("the job spec is not valid", errors=(FieldError("init_from", message),))


def _reason(wanted: Submission, known: Sequence[Known]) -> Reason:
    to = wanted.spec.visibility or wanted.visibility
    return dependencies.waiting(
        [
            dependencies.shown_name(each.id, each.name, each.visibility, to=to)
            for each in known
            if not each.state.terminal
        ]
    )
