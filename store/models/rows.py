"""Models: versions under a name, each the files of a checkpoint, which it keeps when its job is gone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, insert, null, select, tuple_
from sqlalchemy.orm import Session

from store.blobs import garbage
from store.db import columns
from store.db.database import now_us
from store.db.upsert import upsert
from store.models.facts import ModelFacts, ModelFilter, ModelVersionFacts, NewVersion
from store.output.checkpoints_facts import CheckpointFacts
from store.tables import Job, Model, ModelVersion
from store.team import access, quotas, users
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.models import MOST_VERSIONS
from torchyard.contract.team import Role, Visibility

_TOLD = columns.of(ModelVersionFacts, ModelVersion)
_LEFT_OUT = {ModelVersion.card: null().label("card"), ModelVersion.files: columns.short_files(ModelVersion)}
_LISTED: list[Any] = [_LEFT_OUT.get(column, column) for column in _TOLD]
"""The same without the card, and without many files."""
_HAS_VERSION = exists().where(ModelVersion.owner == Model.owner, ModelVersion.name == Model.name)


def add(session: Session, job: Job, checkpoint: CheckpointFacts, wanted: NewVersion) -> tuple[ModelVersionFacts, bool]:
    """Keeps the checkpoint of a locked job as the next version of the caller's model, and whether it is a new one.

    It is none if it is the newest version already. Raises Conflict for another visibility than the model has, and if
    the caller has too many versions; QuotaExceeded.
    """
    owner, name = wanted.caller.name, wanted.name
    users.lock(session, owner)
    model = _locked_or_new(session, wanted)
    newest = _newest(session, owner, name)
    if newest is None:
        model.visibility = wanted.visibility or wanted.default
    elif wanted.visibility not in {None, model.visibility}:
        raise Conflict(f"model {owner}/{name} is {model.visibility}: change its visibility, then add versions")
    if newest is not None and newest.checkpoint_id == checkpoint.id:
        return newest, False
    counted = session.scalar(select(func.count()).select_from(ModelVersion).where(ModelVersion.owner == owner)) or 0
    if counted >= MOST_VERSIONS:
        raise Conflict(f"the models of {owner} have {counted} versions, which is the most: remove some")
    model.last_version += 1
    session.flush()
    kept = _inserted(session, job, checkpoint, owner=owner, name=name, version=model.last_version)
    quotas.check_kept(session, owner, kept.ref)
    return kept, True


def find_version(
    session: Session, caller: Caller, owner: str | None, name: str, version: int | None, *, locked: bool = False
) -> ModelVersionFacts:
    """Returns a version of a model that the caller may read. `owner` None: the caller. `version` None: the newest.

    `locked`: it is not removed until the transaction ends, which must be one that writes. Raises NotFound.
    """
    model = _readable(session, caller, owner or caller.name, name, locked=locked)
    query = select(*_TOLD).where(_of(model.owner, model.name))
    if version is None:
        query = query.order_by(ModelVersion.version.desc()).limit(1)
    else:
        query = query.where(ModelVersion.version == version)
    found = session.execute(query).first()
    if found is None:
        raise NotFound(_explain_missing(session, model, version))
    return _shown(session, caller, [ModelVersionFacts(*found)])[0]


def get(session: Session, caller: Caller, owner: str, name: str) -> ModelFacts:
    """Returns a model that the caller may read. Raises NotFound."""
    return _told(session, caller, [_readable(session, caller, owner, name)])[0]


def listed(
    session: Session, caller: Caller, where: ModelFilter, *, limit: int, after: tuple[str, str] | None = None
) -> Sequence[ModelFacts]:
    """Returns models that the caller may read, by owner and name; with `after`, those behind that owner and name."""
    order = (Model.owner, Model.name)
    query = select(Model).where(access.readable(caller, Model), _HAS_VERSION).order_by(*order).limit(limit)
    if where.owner is not None:
        query = query.where(Model.owner == where.owner)
    if where.name is not None:
        query = query.where(Model.name == where.name)
    if where.job is not None:
        if not access.is_readable(session, where.job, caller):
            return []
        query = query.where(_HAS_VERSION.where(ModelVersion.job_id == where.job))
    if after is not None:
        query = query.where(tuple_(*order) > after)
    return _told(session, caller, session.scalars(query).all())


def newest_first(
    session: Session, caller: Caller, owner: str, name: str, *, limit: int, before: int | None = None
) -> Sequence[ModelVersionFacts]:
    """Returns versions of a model that the caller may read; with `before`, only lower ones. Raises NotFound."""
    model = _readable(session, caller, owner, name)
    query = select(*_LISTED).where(_of(model.owner, model.name)).order_by(ModelVersion.version.desc()).limit(limit)
    if before is not None:
        query = query.where(ModelVersion.version < before)
    return _shown(session, caller, [ModelVersionFacts(*row) for row in session.execute(query)])


def share(session: Session, caller: Caller, owner: str, name: str, visibility: Visibility) -> ModelFacts:
    """Changes who may read a model, and returns it. Raises NotFound and Forbidden."""
    model = _changeable(session, caller, owner, name)
    model.visibility = visibility
    session.flush()
    return _told(session, caller, [model])[0]


def remove(session: Session, caller: Caller, owner: str, name: str, version: int | None = None) -> None:
    """Removes a version, or all, and leaves the files to the garbage collector. Raises NotFound and Forbidden."""
    model = _changeable(session, caller, owner, name)
    gone = _of(owner, name) if version is None else and_(_of(owner, name), ModelVersion.version == version)
    files = session.scalars(select(ModelVersion.files).where(gone)).all()
    if not files:
        raise NotFound(_explain_missing(session, model, version))
    session.execute(delete(ModelVersion).where(gone), execution_options={"synchronize_session": False})
    garbage.add(session, files)


def _locked_or_new(session: Session, wanted: NewVersion) -> Model:
    owner, name = wanted.caller.name, wanted.name
    new = upsert(session, Model).values(owner=owner, name=name, visibility=wanted.default, last_version=0)
    session.execute(new.on_conflict_do_nothing())
    query = select(Model).where(Model.owner == owner, Model.name == name).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _inserted(
    session: Session, job: Job, checkpoint: CheckpointFacts, *, owner: str, name: str, version: int
) -> ModelVersionFacts:
    copied = {key: getattr(checkpoint, key) for key in ("step", "epoch", "metrics", "files", "files_bytes")}
    row = insert(ModelVersion).values(
        owner=owner,
        name=name,
        version=version,
        trainer=job.trainer,
        job_id=job.id,
        checkpoint_id=checkpoint.id,
        card=job.card,
        size=sum(file["size"] for file in checkpoint.files),
        created_at=now_us(),
        sent=checkpoint.main_file,
        **copied,
    )
    return ModelVersionFacts(*session.execute(row.returning(*_TOLD)).one())


def _newest(session: Session, owner: str, name: str) -> ModelVersionFacts | None:
    query = select(*_TOLD).where(_of(owner, name)).order_by(ModelVersion.version.desc()).limit(1)
    found = session.execute(query).first()
    return None if found is None else ModelVersionFacts(*found)


def _readable(session: Session, caller: Caller, owner: str, name: str, *, locked: bool = False) -> Model:
    query = select(Model).where(Model.owner == owner, Model.name == name, access.readable(caller, Model), _HAS_VERSION)
    if locked:  # by itself: what is read afterwards is what other transactions have left
        query = query.with_for_update(read=True).execution_options(populate_existing=True)
    model = session.scalars(query).first()
    if model is None:
        raise NotFound(f"there is no model {owner}/{name}")
    return model


def _changeable(session: Session, caller: Caller, owner: str, name: str) -> Model:
    """Returns a model that the caller may change, locked until the transaction ends. Raises NotFound and Forbidden."""
    own = (Model.owner == owner, Model.name == name, access.changeable(caller, Model))
    query = select(Model).where(*own, _HAS_VERSION)
    model = session.scalars(query.with_for_update().execution_options(populate_existing=True)).first()
    if model is None:
        _readable(session, caller, owner, name)
        raise Forbidden(f"model {owner}/{name} belongs to {owner}: only its owner and administrators may do this")
    return model


def _told(session: Session, caller: Caller, found: Sequence[Model]) -> list[ModelFacts]:
    keys = [(model.owner, model.name) for model in found]
    version = (ModelVersion.owner, ModelVersion.name)
    sums = select(*version, func.count(), func.sum(ModelVersion.size), func.max(ModelVersion.version))
    counted = {
        (owner, name): (count, int(size), last)
        for owner, name, count, size, last in session.execute(sums.where(tuple_(*version).in_(keys)).group_by(*version))
    }
    wanted = [(*key, last) for key, (_, _, last) in counted.items()]
    rows = session.execute(select(*_LISTED).where(tuple_(*version, ModelVersion.version).in_(wanted)))
    shown = _shown(session, caller, [ModelVersionFacts(*row) for row in rows])
    newest = {(each.owner, each.name): each for each in shown}
    return [
        ModelFacts(*key, model.visibility, *counted[key][:2], newest[key])
        for key, model in zip(keys, found, strict=True)
    ]


def _shown(session: Session, caller: Caller, found: Sequence[ModelVersionFacts]) -> list[ModelVersionFacts]:
    """Returns the versions, and whether the caller may know of which job each comes."""
    if caller.role is Role.ADMIN:
        return [*found]
    others = {each.job_id for each in found if each.owner != caller.name}
    query = select(Job.id).where(Job.id.in_(others), access.readable(caller))
    known = set(session.scalars(query)) if others else set[str]()
    return [replace(each, shows_job=each.owner == caller.name or each.job_id in known) for each in found]


def _explain_missing(session: Session, model: Model, version: int | None) -> str:
    query = select(ModelVersion.version).where(_of(model.owner, model.name)).order_by(ModelVersion.version.desc())
    there = ", ".join(map(str, session.scalars(query.limit(10))))
    if not there:
        return f"there is no model {model.owner}/{model.name}"
    return f"model {model.owner}/{model.name} has no version {version}; it has {there}"


def _of(owner: str, name: str) -> ColumnElement[bool]:
    return and_(ModelVersion.owner == owner, ModelVersion.name == name)
