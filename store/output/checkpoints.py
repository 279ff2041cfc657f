"""Checkpoints: rows over blobs. A row means that every byte is in the blob store."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
import json
import math
import re
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, bindparam, cast, func, insert, or_, select, update
from sqlalchemy.orm import Session

from store import pages
from store.db import columns
from store.db.documents import Parsed
from store.db.prepared import Prepared, among, texts
from store.ids import is_id, new_id
from store.jobs import events as job_events
from store.jobs.facts import BestCheckpoint
from store.notifications import signals
from store.output.checkpoints_facts import (
    CAPTURED,
    ORDER,
    CheckpointFacts,
    OrderKey,
    order_key,
    path_written,
    resumable,
    sent_of,
)
from store.output.facts import NewCheckpoint
from store.pages import FactPage
from store.sweeps import sweeps
from store.tables import Base, Checkpoint, Job
from store.team import access
from store.team.callers import Caller
from torchyard.contract.attempts.events import Remeasured
from torchyard.contract.errors import InvalidCursor, NotFound
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.wire.codec import json_number

_CHECKPOINTS = Base.metadata.tables["checkpoints"].c
MOST_FILES_BYTES = 64 << 20
"""The most bytes of JSON that are read at once of the file lists of a job's checkpoints."""
_ORDER = tuple(getattr(Checkpoint, name) for name in ORDER)
"""The columns of the order of `store.output.checkpoints_facts`, oldest first."""
_NEWEST_FIRST = tuple(column.desc() for column in _ORDER)
_NUMBERED = re.compile(r"(epoch|step)-([0-9]{1,18})")


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint, and the job that has it."""

    job_id: str
    job_name: str
    checkpoint: CheckpointFacts


def _select_best(value: ColumnElement[float | None]) -> Select[*tuple[Any, ...]]:
    order = (value, *_ORDER)
    rank = func.row_number().over(partition_by=Checkpoint.job_id, order_by=order).label("rank")
    ranked = select(Checkpoint.id, rank).where(
        Checkpoint.job_id.in_(bindparam("jobs", expanding=True)),
        Checkpoint.removed_at.is_(None),
        Checkpoint.monitored.is_not(None),
        ~Checkpoint.damaged,
    )
    first = ranked.subquery()
    values = (Checkpoint.id, Checkpoint.monitored, Checkpoint.epoch, Checkpoint.step, Checkpoint.remeasured)
    best = select(Checkpoint.job_id, *values)
    return best.join(first, first.c.id == Checkpoint.id).where(first.c.rank == 1)


# Built once: building a statement costs more than executing it, and every answer with jobs executes these.
_BEST = {"min": _select_best(Checkpoint.monitored.asc()), "max": _select_best(Checkpoint.monitored.desc())}


_COLUMNS = columns.select_fields(CheckpointFacts, Checkpoint)
_FILES = columns.short_files(Checkpoint)
_SUMMARY: list[Any] = [_FILES if column is Checkpoint.files else column for column in _COLUMNS]
"""The same without many files."""


def add(session: Session, job_id: str, *, attempt: int, new: NewCheckpoint) -> None:
    """Inserts a checkpoint and its event. Does nothing if the attempt has listed the name before, even if removed."""
    known = select(Checkpoint.id).where(
        Checkpoint.job_id == job_id, Checkpoint.attempt == attempt, Checkpoint.name == new.name
    )
    if session.execute(known).first() is not None:
        return
    job = session.get_one(Job, job_id)
    policy = job.stored_spec.checkpoint
    files = new.entries
    monitored = new.manifest.metrics.get(policy.monitor)
    values = {
        "id": new_id("ckpt"),
        "epoch": new.manifest.epoch,
        "step": new.manifest.step,
        "metrics": {key: json_number(value) for key, value in new.manifest.metrics.items()},
    }
    sent = sent_of(files, of=f"checkpoint {new.name}") if files else None
    session.execute(
        insert(Checkpoint).values(
            job_id=job_id,
            attempt=attempt,
            name=new.name,
            end_of_epoch=new.manifest.end_of_epoch,
            monitored=monitored if monitored is not None and math.isfinite(monitored) else None,
            files=files,
            files_bytes=len(json.dumps(files)),
            sent=sent,
            size=sum(file.size for file in new.files),
            source=new.source,
            saved_at=new.saved_at,
            damaged=new.damaged,
            **values,
        )
    )
    session.execute(update(Job).where(Job.id == job_id).values(version=Job.version + 1))
    written = {"file": path_written(sent)} if new.source == CAPTURED and sent is not None else {}
    job_events.append(session, job_id, type="checkpoint", attempt=attempt, data={**values, **written})
    if signals.is_wanted(session, EventKind.JOB_BEST, job=job):
        _signal_best(session, job, str(values["id"]))


def note_remeasured(session: Session, job_id: str, *, attempt: int, event: Remeasured) -> None:
    """Stores what a checkpoint of the job has measured again. Does nothing if it is not listed."""
    saved_by = attempt if event.attempt is None else event.attempt
    values = {key: json_number(value) for key, value in event.metrics.items()}
    changed = session.execute(
        update(Checkpoint)
        .where(_of_attempt(job_id, saved_by), Checkpoint.name == event.name, Checkpoint.removed_at.is_(None))
        .values(remeasured=values)
        .returning(Checkpoint.id)
    ).first()
    if changed is not None:
        session.execute(update(Job).where(Job.id == job_id).values(version=Job.version + 1))


def list_newest_first(session: Session, job_id: str, *, most_bytes: int = MOST_FILES_BYTES) -> list[CheckpointFacts]:
    """Returns the job's checkpoints without aliases, newest first.

    Long lists of files are read for the newest alone, up to `most_bytes` of JSON: `find_with_files` reads another.
    """
    query = select(*_SUMMARY).where(Checkpoint.job_id == job_id, Checkpoint.removed_at.is_(None))
    listed = [CheckpointFacts(*row) for row in session.execute(query.order_by(*_NEWEST_FIRST))]
    sizes = accumulate((each.files_bytes or 0) if each.files_omitted else 0 for each in listed)
    near = [each.id for each, size in zip(listed, sizes, strict=True) if each.files_omitted and size <= most_bytes]
    whole = {each.id: each for each in _with_aliases(session, near, {}, _COLUMNS)}
    return [whole.get(each.id, each) for each in listed]


def find_with_files(session: Session, job_id: str, checkpoint_id: str) -> CheckpointFacts | None:
    """Returns a checkpoint of a job with all of its files, without aliases; None if it is no longer there."""
    mine = Checkpoint.id == checkpoint_id, Checkpoint.job_id == job_id
    row = session.execute(select(*_COLUMNS).where(*mine)).first()
    return None if row is None else CheckpointFacts(*row)


def find_resumed(session: Session, job_id: str) -> CheckpointFacts | None:
    """Returns the checkpoint that the job goes on from, without aliases; None without a whole one."""
    query = select(*_COLUMNS).where(Checkpoint.job_id == job_id, Checkpoint.removed_at.is_(None))
    row = session.execute(sort_resumed_first(query).limit(1)).first()
    return None if row is None else CheckpointFacts(*row)


def sort_resumed_first(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """Returns the query with those checkpoints alone that a job may go on from, the one that it does first."""
    return query.where(~Checkpoint.damaged).order_by(Checkpoint.source.is_not(None), *_NEWEST_FIRST)


def is_progress(session: Session, job_id: str, *, attempt: int, start_step: int) -> bool:
    """Returns whether the attempt has saved something new: a whole file, or a later step than it started from.

    Counts those that were removed since.
    """
    new = or_(Checkpoint.source.is_not(None), Checkpoint.step > start_step)
    query = select(Checkpoint.id).where(_of_attempt(job_id, attempt), ~Checkpoint.damaged, new)
    return session.execute(query.limit(1)).first() is not None


def list_checkpoints(
    session: Session, job_id: str, *, caller: Caller, limit: int, after: str | None = None
) -> FactPage[CheckpointFacts]:
    """Returns the checkpoints of a job that the caller may read, newest first, with their aliases.

    With `after` (an id), only older ones; that one may be removed. Raises NotFound, and InvalidCursor if the job has no
    such checkpoint.
    """
    job = access.require_job(session, job_id, caller)
    entries = _entries(session, job.id)
    aliases = _aliases(entries, find_best(session, job))
    if after is not None:
        given = _order_key_of(session, job, after)
        entries = [entry for entry in entries if order_key(entry) < given]
    ids = [entry.id for entry in entries[: limit + 1]]
    return pages.first(_with_aliases(session, ids, aliases, _SUMMARY), limit)


def find_named(session: Session, job_id: str, ref: str, *, caller: Caller) -> NamedCheckpoint:
    """Returns the checkpoint of `ref` of a job that the caller may read, or, of a sweep's id, its `best`.

    Raises NotFound as `resolve` does, and for what the caller may not read.
    """
    job = access.require_job(session, sweeps.resolve_job(session, caller, job_id, ref), caller)
    return NamedCheckpoint(job.id, job.name, resolve(session, job, ref))


def find_best(session: Session, job: Job) -> BestCheckpoint | None:
    """Returns the checkpoint with the best finite value of the monitored metric; the earliest of equal ones."""
    return find_best_of_jobs(session, {job.id: job.stored_spec.checkpoint.mode}).get(job.id)


def find_best_of_jobs(session: Session, modes: Mapping[str, str]) -> dict[str, BestCheckpoint]:
    """Returns `find_best` for many jobs by id, each given with its `checkpoint.mode`. Leaves out jobs without one."""
    best: dict[str, BestCheckpoint] = {}
    for mode, query in _BEST.items():
        ids = [job_id for job_id, wanted in modes.items() if wanted == mode]
        rows = session.execute(query, {"jobs": ids}) if ids else ()
        best |= {row.job_id: BestCheckpoint(*row[1:]) for row in rows}
    return best


_MEASURED = Prepared(
    select(_CHECKPOINTS.id, cast(_CHECKPOINTS.metrics, Parsed).label("metrics")).where(among(_CHECKPOINTS.id, "ids"))
)


def read_metrics(session: Session, checkpoint_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Returns the metrics of checkpoints, as JSON, by id."""
    return {row.id: row.metrics for row in _MEASURED.rows(session, {"ids": texts(checkpoint_ids)})}


def resolve(session: Session, job: Job, ref: str) -> CheckpointFacts:
    """Returns the checkpoint that `ref` names: an id, `best`, `latest`, `epoch-N` or `step-N`. Raises NotFound."""
    wanted = _canonical(ref)
    entries = _entries(session, job.id)
    aliases = _aliases(entries, find_best(session, job))
    checkpoint_id = wanted if any(entry.id == wanted for entry in entries) else aliases.get(wanted)
    if checkpoint_id is None:
        raise NotFound(f"job {job.id} {_explain_missing(session, job, wanted)}")
    return _with_aliases(session, [checkpoint_id], aliases, _COLUMNS)[0]


def list_recorded_names(session: Session, job_id: str, *, attempt: int) -> list[str]:
    """Returns the names of all checkpoints that the attempt listed, including removed ones."""
    return list(session.scalars(select(Checkpoint.name).where(_of_attempt(job_id, attempt))))


def list_captured_names(session: Session, job_id: str) -> list[str]:
    """Returns the names of all checkpoints that the job's attempts captured, including removed ones."""
    captured = (Checkpoint.job_id == job_id, Checkpoint.source == CAPTURED)
    return list(session.scalars(select(Checkpoint.name).where(*captured)))


def list_removed(session: Session, job_id: str, *, attempt: int, names: Collection[str]) -> set[str]:
    """Returns those of `names` that the attempt listed and that were removed."""
    query = select(Checkpoint.name).where(_of_attempt(job_id, attempt), Checkpoint.removed_at.is_not(None))
    return set(session.scalars(query.where(Checkpoint.name.in_(names))))


def _signal_best(session: Session, job: Job, checkpoint_id: str) -> None:
    """Stores for the job's targets that this new checkpoint is its best, if it is."""
    best = find_best(session, job)
    if best is None or best.id != checkpoint_id:
        return
    metric = signals.brief(job.stored_spec.checkpoint.monitor)
    checkpoint = {"id": best.id, "epoch": best.epoch, "step": best.step, "metric": metric, "value": best.value}
    data = {"checkpoint": checkpoint, "text": f"{metric} {best.value:.6g} at step {best.step}"}
    signals.add(session, EventKind.JOB_BEST, job=job, data=data)


class _Entry(NamedTuple):
    """Of a listed checkpoint, what its position in the list and its aliases depend on."""

    id: str
    attempt: int
    saved_at: int
    damaged: bool
    source: str | None
    step: int
    epoch: int | None
    end_of_epoch: bool


_ENTRY = tuple(getattr(Checkpoint, name) for name in _Entry._fields)


def _entries(session: Session, job_id: str) -> list[_Entry]:
    """Returns the job's listed checkpoints, newest first: without their files, which may be thousands."""
    query: Select[*tuple[Any, ...]] = select(*_ENTRY)
    query = query.where(Checkpoint.job_id == job_id, Checkpoint.removed_at.is_(None)).order_by(*_NEWEST_FIRST)
    return [_Entry(*row) for row in session.execute(query)]


def _order_key_of(session: Session, job: Job, checkpoint_id: str) -> OrderKey:
    """Returns what orders a checkpoint of the job, which may be removed. Raises InvalidCursor if there is none."""
    query = select(*_ORDER)
    row = session.execute(query.where(Checkpoint.id == checkpoint_id, Checkpoint.job_id == job.id)).first()
    if row is None:
        raise InvalidCursor(f"{checkpoint_id!r} is not a checkpoint of this job")
    return row.attempt, row.saved_at, row.id


def _with_aliases(
    session: Session, ids: Sequence[str], aliases: Mapping[str, str], selected: Sequence[Any]
) -> list[CheckpointFacts]:
    """Returns these checkpoints, in this order. `selected`: the columns that are read."""
    rows = session.execute(select(*selected).where(Checkpoint.id.in_(ids))) if ids else ()
    checkpoints = {facts.id: facts for facts in (CheckpointFacts(*row) for row in rows)}
    names: dict[str, list[str]] = {}
    for alias, checkpoint_id in aliases.items():
        names.setdefault(checkpoint_id, []).append(alias)
    return [replace(checkpoints[each], aliases=names.get(each, ())) for each in ids]


def _aliases(rows: Sequence[_Entry], best: BestCheckpoint | None) -> dict[str, str]:
    owners: dict[str, str] = {}
    if best is not None:
        owners["best"] = best.id
    whole = [row for row in rows if not row.damaged]
    for row in resumable(rows)[:1]:
        owners["latest"] = row.id
    for row in whole:
        if row.epoch is not None and row.end_of_epoch:
            owners.setdefault(f"epoch-{row.epoch}", row.id)
        if row.step or row.source != CAPTURED:  # of a captured one 0 says that its program reported no step
            owners.setdefault(f"step-{row.step}", row.id)
    return owners


def _of_attempt(job_id: str, attempt: int) -> ColumnElement[bool]:
    return and_(Checkpoint.job_id == job_id, Checkpoint.attempt == attempt)


def _explain_missing(session: Session, job: Job, wanted: str) -> str:
    if job.attempt == 0:
        return "has no checkpoint yet"
    if not _was_removed(session, job.id, wanted):
        return f"has no checkpoint {wanted[:100]!r}"
    policy = job.stored_spec.checkpoint
    kept = f"checkpoint.keep_last {policy.keep_last}, checkpoint.keep_best {policy.keep_best}"
    reason = (
        "to keep to the quota of stored bytes" if policy.keep_last is None else f"for newer and better ones ({kept})"
    )
    return f"has checkpoint {wanted!r} no longer: it was removed {reason}"


def _was_removed(session: Session, job_id: str, wanted: str) -> bool:
    match = _NUMBERED.fullmatch(wanted)
    if match is None and not is_id(wanted, "ckpt"):
        return False
    query = select(Checkpoint.id).where(Checkpoint.job_id == job_id, Checkpoint.removed_at.is_not(None))
    if match is None:
        query = query.where(Checkpoint.id == wanted)
    elif match[1] == "epoch":
        query = query.where(Checkpoint.epoch == int(match[2]), Checkpoint.end_of_epoch)
    else:
        query = query.where(Checkpoint.step == int(match[2]))
    return session.execute(query.limit(1)).first() is not None


def _canonical(ref: str) -> str:
    if is_id(ref, "ckpt"):
        return ref
    match = _NUMBERED.fullmatch(ref)
    return f"{match[1]}-{int(match[2])}" if match else ref
