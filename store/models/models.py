"""Models: versions under a name, each the files of a checkpoint, which it keeps when its job is gone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, insert, null, select, tuple_
from sqlalchemy.orm import Session

from store import pages
from store.blobs import garbage
from store.db import columns
from store.db.database import now_us
from store.db.upsert import upsert
from store.models.facts import ModelFacts, ModelFilter, ModelVersionFacts, NewVersion
from store.output import checkpoints
from store.output.checkpoints_facts import CheckpointFacts
from store.pages import FactPage
from store.sweeps import sweeps
from store.tables import Job, Model, ModelVersion
from store.team import access, audit, quotas, users
from store.team.callers import Caller
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.models.names import MOST_VERSIONS, ModelRef
from torchyard.contract.team.roles import Role, Visibility

_COLUMNS = columns.select_fields(ModelVersionFacts, ModelVersion)
_SHORT = {ModelVersion.card: null().label("card"), ModelVersion.files: columns.short_files(ModelVersion)}
_SUMMARY: list[Any] = [_SHORT.get(column, column) for column in _COLUMNS]
"""The same without the card, and without many files."""
_HAS_VERSION = exists().where(ModelVersion.owner == Model.owner, ModelVersion.name == Model.name)


def add_version(session: Session, wanted: NewVersion) -> tuple[ModelVersionFacts, bool]:
    """Keeps a checkpoint of a job that the caller may read as the next version of the caller's model.

    Returns also whether the version is a new one: it is none if the newest has this checkpoint already. Raises
    NotFound, QuotaExceeded, and Conflict for another visibility than the model has, or too many versions.
    """
    # Locked, so that neither the checkpoint nor the job is removed meanwhile.
    job_id = sweeps.resolve_job(session, wanted.caller, wanted.job_id, wanted.ref)
    job = access.lock_readable(session, job_id, wanted.caller)
    checkpoint = checkpoints.resolve(session, job, wanted.ref)
    owner, name = wanted.caller.name, wanted.name
    users.lock(session, owner)
    model = _lock_or_create(session, wanted)
    newest = _newest_version(session, owner, name)
    if newest is None:
        model.visibility = wanted.visibility or wanted.default
    elif wanted.visibility not in {None, model.visibility}:
        raise Conflict(f"model {owner}/{name} is {model.visibility}: change its visibility, then add versions")
    if newest is not None and newest.checkpoint_id == checkpoint.id:
        return newest, False
    stored = session.scalar(select(func.count()).select_from(ModelVersion).where(ModelVersion.owner == owner)) or 0
    if stored >= MOST_VERSIONS:
        raise Conflict(f"the models of {owner} have {stored} versions, the maximum: delete some")
    model.last_version += 1
    session.flush()
    version = _insert_version(session, job, checkpoint, owner=owner, name=name, version=model.last_version)
    quotas.check_kept(session, owner, version.ref)
    audit.add(session, wanted.caller, "model.add", f"{version.ref} of {job.id}/{checkpoint.id}")
    return version, True


def find_version(
    session: Session, owner: str | None, name: str, version: int | None, *, caller: Caller, locked: bool = False
) -> ModelVersionFacts:
    """Returns a version of a model that the caller may read. `owner` None: the caller. `version` None: the newest.

    `locked`: it is not removed until the transaction ends, which must be one that writes. Raises NotFound.
    """
    model = _readable(session, caller, owner or caller.name, name, locked=locked)
    query = select(*_COLUMNS).where(_version_of(model.owner, model.name))
    if version is None:
        query = query.order_by(ModelVersion.version.desc()).limit(1)
    else:
        query = query.where(ModelVersion.version == version)
    row = session.execute(query).first()
    if row is None:
        raise NotFound(_explain_missing(session, model, version))
    return _hide_jobs(session, caller, [ModelVersionFacts(*row)])[0]


def find(session: Session, owner: str, name: str, *, caller: Caller) -> ModelFacts:
    """Returns a model that the caller may read. Raises NotFound."""
    return _with_versions(session, caller, [_readable(session, caller, owner, name)])[0]


def list_models(
    session: Session, where: ModelFilter, *, caller: Caller, limit: int, after: tuple[str, str] | None = None
) -> FactPage[ModelFacts]:
    """Returns models that the caller may read, by owner and name; with `after`, those after that owner and name."""
    order = (Model.owner, Model.name)
    query = select(Model).where(access.match_readable(caller, Model), _HAS_VERSION).order_by(*order).limit(limit + 1)
    if where.owner is not None:
        query = query.where(Model.owner == where.owner)
    if where.name is not None:
        query = query.where(Model.name == where.name)
    if where.job is not None:
        if not access.is_readable(session, where.job, caller):
            return FactPage([], has_more=False)
        query = query.where(_HAS_VERSION.where(ModelVersion.job_id == where.job))
    if after is not None:
        query = query.where(tuple_(*order) > after)
    return pages.first(_with_versions(session, caller, session.scalars(query).all()), limit)


def list_versions(
    session: Session, owner: str, name: str, *, caller: Caller, limit: int, before: int | None = None
) -> FactPage[ModelVersionFacts]:
    """Returns versions of a model that the caller may read, newest first; with `before`, only lower ones.

    Raises NotFound.
    """
    model = _readable(session, caller, owner, name)
    newest_first = ModelVersion.version.desc()
    query = select(*_SUMMARY).where(_version_of(model.owner, model.name)).order_by(newest_first).limit(limit + 1)
    if before is not None:
        query = query.where(ModelVersion.version < before)
    versions = [ModelVersionFacts(*row) for row in session.execute(query)]
    return pages.first(_hide_jobs(session, caller, versions), limit)


def share(session: Session, owner: str, name: str, visibility: Visibility, *, caller: Caller) -> ModelFacts:
    """Changes who may read a model, and returns it. Raises NotFound and Forbidden."""
    model = _lock_changeable(session, caller, owner, name)
    model.visibility = visibility
    session.flush()
    audit.add(session, caller, "model.change", f"{owner}/{name} {visibility}")
    return _with_versions(session, caller, [model])[0]


def remove(session: Session, owner: str, name: str, version: int | None = None, *, caller: Caller) -> None:
    """Removes a version, or the model with all of them, and leaves the files to the garbage collector.

    Raises NotFound and Forbidden.
    """
    model = _lock_changeable(session, caller, owner, name)
    removed = _version_of(owner, name)
    if version is not None:
        removed = and_(removed, ModelVersion.version == version)
    files = session.scalars(select(ModelVersion.files).where(removed)).all()
    if not files:
        raise NotFound(_explain_missing(session, model, version))
    session.execute(delete(ModelVersion).where(removed), execution_options={"synchronize_session": False})
    garbage.add(session, files)
    audit.add(session, caller, "model.delete", str(ModelRef(owner, name, version)))


def _lock_or_create(session: Session, wanted: NewVersion) -> Model:
    owner, name = wanted.caller.name, wanted.name
    new = upsert(session, Model).values(owner=owner, name=name, visibility=wanted.default, last_version=0)
    session.execute(new.on_conflict_do_nothing())
    query = select(Model).where(Model.owner == owner, Model.name == name).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _insert_version(
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
    return ModelVersionFacts(*session.execute(row.returning(*_COLUMNS)).one())


def _newest_version(session: Session, owner: str, name: str) -> ModelVersionFacts | None:
    query = select(*_COLUMNS).where(_version_of(owner, name)).order_by(ModelVersion.version.desc()).limit(1)
    row = session.execute(query).first()
    return None if row is None else ModelVersionFacts(*row)


def _readable(session: Session, caller: Caller, owner: str, name: str, *, locked: bool = False) -> Model:
    query = select(Model).where(
        Model.owner == owner, Model.name == name, access.match_readable(caller, Model), _HAS_VERSION
    )
    if locked:  # by itself: what is read afterwards is what other transactions have left
        query = query.with_for_update(read=True).execution_options(populate_existing=True)
    model = session.scalars(query).first()
    if model is None:
        raise NotFound(f"there is no model {owner}/{name}")
    return model


def _lock_changeable(session: Session, caller: Caller, owner: str, name: str) -> Model:
    """Returns a model that the caller may change, locked until the transaction ends. Raises NotFound and Forbidden."""
    own = (Model.owner == owner, Model.name == name, access.changeable(caller, Model))
    query = select(Model).where(*own, _HAS_VERSION)
    model = session.scalars(query.with_for_update().execution_options(populate_existing=True)).first()
    if model is None:
        _readable(session, caller, owner, name)
        raise Forbidden(f"model {owner}/{name} belongs to {owner}: only its owner and administrators may do this")
    return model


def _with_versions(session: Session, caller: Caller, models: Sequence[Model]) -> list[ModelFacts]:
    keys = [(model.owner, model.name) for model in models]
    version = (ModelVersion.owner, ModelVersion.name)
    sums = select(*version, func.count(), func.sum(ModelVersion.size), func.max(ModelVersion.version))
    counted = {
        (owner, name): (count, int(size), last)
        for owner, name, count, size, last in session.execute(sums.where(tuple_(*version).in_(keys)).group_by(*version))
    }
    wanted = [(*key, last) for key, (_, _, last) in counted.items()]
    rows = session.execute(select(*_SUMMARY).where(tuple_(*version, ModelVersion.version).in_(wanted)))
    shown = _hide_jobs(session, caller, [ModelVersionFacts(*row) for row in rows])
    newest = {(each.owner, each.name): each for each in shown}
    return [
        ModelFacts(*key, model.visibility, *counted[key][:2], newest[key])
        for key, model in zip(keys, models, strict=True)
    ]


def _hide_jobs(session: Session, caller: Caller, versions: Sequence[ModelVersionFacts]) -> list[ModelVersionFacts]:
    """Returns the versions, and whether the caller may know of which job each comes."""
    if caller.role is Role.ADMIN:
        return [*versions]
    others = {each.job_id for each in versions if each.owner != caller.name}
    query = select(Job.id).where(Job.id.in_(others), access.match_readable(caller))
    known = set(session.scalars(query)) if others else set[str]()
    return [replace(each, shows_job=each.owner == caller.name or each.job_id in known) for each in versions]


def _explain_missing(session: Session, model: Model, version: int | None) -> str:
    query = (
        select(ModelVersion.version).where(_version_of(model.owner, model.name)).order_by(ModelVersion.version.desc())
    )
    there = ", ".join(map(str, session.scalars(query.limit(10))))
    if not there:
        return f"there is no model {model.owner}/{model.name}"
    return f"model {model.owner}/{model.name} has no version {version}; it has {there}"


def _version_of(owner: str, name: str) -> ColumnElement[bool]:
    return and_(ModelVersion.owner == owner, ModelVersion.name == name)
