"""The rows of bundles: who has uploaded which, which jobs name them, and when nobody needs them any more.

What one user has is never visible to another: each has a row of their own, and only the blob is shared.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import and_, delete, exists, insert, select, tuple_, update
from sqlalchemy.orm import Session

from store.blobs import garbage
from store.bundles.facts import BundleFacts
from store.db import columns
from store.db.database import in_us, now_us
from store.db.upsert import upsert
from store.tables import Bundle, BundleUse, Job, Schedule
from store.team import audit, users
from store.team.callers import Caller
from torchyard.contract.bundles.parts import count_parts
from torchyard.contract.errors import Conflict, FieldError, InvalidSpec, NotFound
from torchyard.contract.states import JobState

_AT_ONCE = 4
"""Rows with parts that are read together: those of one bundle may have megabytes."""
_ENDED = [state for state in JobState if state.terminal]


def find(session: Session, owner: str, sha256: str) -> BundleFacts | None:
    """Returns the complete bundle of this user, or None."""
    query = columns.select(BundleFacts, Bundle).where(Bundle.owner == owner, Bundle.sha256 == sha256)
    row = session.execute(query).first()
    return None if row is None else BundleFacts(*row)


def add(session: Session, owner: str, sha256: str, *, size: int, files: int, parts: bytes | None = None) -> BundleFacts:
    """Adds a bundle whose blob is stored. If the user has it already, it counts as used now."""
    new = upsert(session, Bundle)
    again = {"last_used_at": now_us(), "parts": parts}
    new = new.on_conflict_do_update(index_elements=["owner", "sha256"], set_=again)
    session.execute(new, {"owner": owner, "sha256": sha256, "size": size, "files": files, "parts": parts})
    added = find(session, owner, sha256)
    assert added is not None
    return added


def list_newest(
    session: Session, owner: str, *, limit: int, after: tuple[int, str] | None = None, name: str | None = None
) -> Sequence[BundleFacts]:
    """Returns bundles of the user; with `after` (time and sha256), only older ones, and only that of a `name`."""
    order = (Bundle.created_at, Bundle.sha256)
    query = (
        columns.select(BundleFacts, Bundle)
        .where(Bundle.owner == owner, *(() if name is None else (Bundle.name == name,)))
        .order_by(*(column.desc() for column in order))
        .limit(limit)
    )
    rows = session.execute(query if after is None else query.where(tuple_(*order) < after))
    return [BundleFacts(*row) for row in rows]


def give_name(session: Session, sha256: str, name: str, *, caller: Caller) -> BundleFacts:
    """Gives the caller's bundle a name, which another one of theirs may have had. Raises NotFound."""
    owner, options = caller.name, {"synchronize_session": False}
    users.lock(session, owner)
    bundle = find(session, owner, sha256)
    if bundle is None:
        raise NotFound(f"there is no complete bundle {sha256}")
    taken = update(Bundle).where(Bundle.owner == owner, Bundle.name == name, Bundle.sha256 != sha256)
    session.execute(taken.values(name=None), execution_options=options)
    mine = update(Bundle).where(Bundle.owner == owner, Bundle.sha256 == sha256)
    session.execute(mine.values(name=name, last_used_at=now_us()), execution_options=options)
    audit.add(session, caller, "bundle.name", sha256)
    return replace(bundle, name=name)


def list_parts(session: Session, owner: str, *, most: int, bundles: int) -> list[tuple[str, int, bytes]]:
    """Returns the sha256, the size and the parts of the user's newest bundles: of no more than `bundles`, and no more
    than `most` parts, but for the last one.
    """
    query = select(Bundle.sha256, Bundle.size, Bundle.parts).where(Bundle.owner == owner, Bundle.parts.is_not(None))
    listed: list[tuple[str, int, bytes]] = []
    newest = query.order_by(Bundle.created_at.desc()).limit(bundles)
    with closing(session.execute(newest, execution_options={"yield_per": _AT_ONCE})) as rows:
        for sha256, size, parts in rows:
            assert parts is not None
            listed.append((sha256, size, parts))
            most -= count_parts(parts)
            if most <= 0:
                break
    return listed


def remove(session: Session, owner: str, sha256: str) -> bool:
    """Removes a bundle and leaves its blob to the garbage collector. Returns whether there was one.

    Raises Conflict while a schedule of the user, or a job that has not ended, names it.
    """
    # Locked, so that no submission names it meanwhile.
    query = select(Bundle).where(Bundle.owner == owner, Bundle.sha256 == sha256).with_for_update()
    row = session.scalars(query.execution_options(populate_existing=True)).first()
    if row is None:
        return False
    used = select(Job.id, Job.state).join(BundleUse, BundleUse.job_id == Job.id)
    job = session.execute(
        used.where(BundleUse.sha256 == sha256, Job.owner == owner, Job.state.not_in(_ENDED)).limit(1)
    ).first()
    if job is not None:
        raise Conflict(f"bundle {sha256} is used by job {job.id}, which is {job.state}: cancel it first")
    named = select(Schedule.id).where(Schedule.owner == owner, Schedule.bundles.contains(sha256)).limit(1)
    if (schedule_id := session.scalar(named)) is not None:
        raise Conflict(f"bundle {sha256} is used by schedule {schedule_id}: delete it first")
    _remove(session, [(owner, sha256)])
    return True


def remove_unused(session: Session, *, age: timedelta, limit: int) -> list[str]:
    """Removes bundles without a name whose last use is `age` ago, and which no job or schedule names. Returns their
    sha256.
    """
    named = exists().where(BundleUse.sha256 == Bundle.sha256, Job.id == BundleUse.job_id, Job.owner == Bundle.owner)
    due = exists().where(Schedule.owner == Bundle.owner, Schedule.bundles.contains(Bundle.sha256))
    old = and_(Bundle.last_used_at < now_us() - in_us(age), Bundle.name.is_(None), ~named, ~due)
    # Rows that a submission or another worker has locked are skipped: a later pass looks at them again.
    some = select(Bundle.owner, Bundle.sha256).where(old).limit(limit).with_for_update(skip_locked=True, of=Bundle)
    keys = [(owner, sha256) for owner, sha256 in session.execute(some)]
    if keys:
        _remove(session, keys)
    return [sha256 for _, sha256 in keys]


def lock(session: Session, keys: Collection[tuple[str, str]]) -> None:
    """Locks bundles, by owner and sha256."""
    if keys:
        query = select(Bundle.sha256).where(tuple_(Bundle.owner, Bundle.sha256).in_(sorted(keys)))
        session.execute(query.order_by(Bundle.owner, Bundle.sha256).with_for_update())


def lock_free(session: Session, keys: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Locks bundles, by owner and sha256. Returns those that another transaction has locked."""
    if not keys:
        return set()
    key = tuple_(Bundle.owner, Bundle.sha256)
    query = select(Bundle.owner, Bundle.sha256).where(key.in_(sorted(keys)))
    there = {(owner, sha256) for owner, sha256 in session.execute(query)}
    free = session.execute(query.order_by(Bundle.owner, Bundle.sha256).with_for_update(skip_locked=True))
    return there - {(owner, sha256) for owner, sha256 in free}


def use(session: Session, owner: str, named: Mapping[str, str]) -> None:
    """Marks the bundles that a spec names (sha256 by field) as used now. Until the transaction ends none is removed.

    Raises InvalidSpec for those that the user has not uploaded completely.
    """
    if not named:
        return
    mine = and_(Bundle.owner == owner, Bundle.sha256.in_(set(named.values())))
    # Always in one order: two transactions that wait for each other's rows would deadlock.
    has = set(session.scalars(select(Bundle.sha256).where(mine).order_by(Bundle.sha256).with_for_update()))
    errors = tuple(
        FieldError(field, f"bundle {sha256} is not among the complete bundles of {owner}: upload it first")
        for field, sha256 in named.items()
        if sha256 not in has
    )
    if errors:
        raise InvalidSpec("the job spec is not valid", errors=errors)
    change = update(Bundle).where(mine).values(last_used_at=now_us())
    session.execute(change, execution_options={"synchronize_session": False})


def record_uses(session: Session, named: Mapping[str, Mapping[str, str]]) -> None:
    """Notes which bundles new jobs name (sha256 by field), by the jobs' ids."""
    rows = [
        {"job_id": job_id, "sha256": sha256} for job_id, its in named.items() for sha256 in sorted(set(its.values()))
    ]
    if rows:
        session.execute(insert(BundleUse), rows)


def _remove(session: Session, keys: Sequence[tuple[str, str]]) -> None:
    statement = delete(Bundle).where(tuple_(Bundle.owner, Bundle.sha256).in_(keys))
    session.execute(statement, execution_options={"synchronize_session": False})
    garbage.add_blobs(session, [sha256 for _, sha256 in keys])
