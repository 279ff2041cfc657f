"""Users: their roles, whether they are disabled, and what the page keeps for each."""

from collections.abc import Collection, Mapping, Sequence
import re
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store import pages
from store.db import columns
from store.db.database import now_us
from store.db.upsert import upsert
from store.pages import FactPage
from store.tables import Job, Preferences, User
from store.team import access, audit
from store.team.callers import BOOTSTRAP, SERVICE, Caller
from torchyard.contract.errors import Conflict, NotFound, OwnerDisabled
from torchyard.contract.states import JobState
from torchyard.contract.team.requests import USER_NAME
from torchyard.contract.team.roles import Role, Scope
from torchyard.contract.team.views import UserView

_LIVE = tuple(state for state in JobState if not state.terminal)


def add(session: Session, name: str, role: Role, *, caller: Caller) -> UserView:
    """Adds a user. Raises Conflict if the name was ever used, as it may own jobs."""
    user = User(name=name, role=role)
    try:
        with session.begin_nested():
            session.add(user)
    except IntegrityError:
        raise Conflict(f"the name {name} is or was used by another user: choose another one") from None
    session.refresh(user)
    audit.add(session, caller, "user.add", f"{name} as {role}")
    return columns.read(UserView, user)


def find(session: Session, name: str) -> User:
    """Returns the user. Raises NotFound."""
    user = session.get(User, name) if re.fullmatch(USER_NAME, name) else None
    if user is None:
        raise NotFound(f"there is no user {name[:100]!r}")
    return user


def act_for(session: Session, owner: str) -> Caller:
    """Returns the user as they are now: the service acts for the owner of a schedule, a sweep or a job that waits
    for others, where nobody sends a request.

    Raises OwnerDisabled if they may not submit a job: they are disabled, a viewer, or there is no such user.
    """
    if owner == BOOTSTRAP:
        return SERVICE
    user = session.execute(select(User.role, User.disabled_at).where(User.name == owner)).first()
    if user is None:
        raise OwnerDisabled(f"there is no user {owner} any more")
    if user.disabled_at is not None:
        raise OwnerDisabled(f"the user {owner} is disabled")
    role = Role(user.role)
    if Scope.JOBS_WRITE not in role.scopes:
        raise OwnerDisabled(f"the user {owner} has the role {role}, which cannot submit jobs")
    return Caller(owner, role)


def lock(session: Session, name: str) -> None:
    """Makes other transactions that count what the user has wait for the end of this one."""
    session.execute(select(User.name).where(User.name == name).with_for_update(key_share=True))


def lock_free(session: Session, names: Collection[str]) -> set[str]:
    """Locks those of the users whom no other transaction has locked, as `lock` does, and returns them."""
    query = select(User.name).where(User.name.in_(names)).order_by(User.name)
    return set(session.scalars(query.with_for_update(key_share=True, skip_locked=True)))


def list_all(session: Session, *, limit: int, after: str | None = None) -> FactPage[UserView]:
    """Returns users by name; with `after` (a name), only those behind it."""
    query = columns.select(UserView, User).order_by(User.name).limit(limit + 1)
    rows = session.execute(query if after is None else query.where(User.name > after))
    return pages.first(columns.views(UserView, rows), limit)


def change(
    session: Session, name: str, *, role: Role | None = None, disabled: bool | None = None, caller: Caller
) -> UserView:
    """Sets the role, or disables or enables the user. Their open streams are checked again at once; their jobs go on.

    Raises NotFound, and Conflict for the bootstrap administrator.
    """
    user = find(session, name)
    if name == BOOTSTRAP:
        raise Conflict(f"{BOOTSTRAP} is the administrator whose token is TORCHYARD_TOKEN: change that setting instead")
    if role is not None:
        user.role = role
    session.flush()
    if disabled is not None:
        disabled_at = now_us() if disabled else None
        unchanged = User.disabled_at.is_not(None) if disabled else User.disabled_at.is_(None)
        session.execute(update(User).where(User.name == name, ~unchanged).values(disabled_at=disabled_at))
    session.refresh(user)
    access.announce(session, name)
    if role is not None:
        audit.add(session, caller, "user.role", f"{name} as {role}")
    if disabled is not None:
        audit.add(session, caller, "user.disable" if disabled else "user.enable", name)
    return columns.read(UserView, user)


def list_live_jobs(session: Session, name: str) -> Sequence[str]:
    """Returns the ids of the user's jobs that have not ended."""
    return session.scalars(select(Job.id).where(Job.owner == name, Job.state.in_(_LIVE)).order_by(Job.id)).all()


def change_preferences(session: Session, name: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stores what the page keeps for the user under the names of `changes`, and leaves the others; None removes one.

    Returns all of it. Not audited: it changes nothing for others.
    """
    empty = upsert(session, Preferences).values(owner=name, document={}, updated_at=now_us())
    session.execute(empty.on_conflict_do_nothing(index_elements=[Preferences.owner]))
    kept = session.scalars(select(Preferences).where(Preferences.owner == name).with_for_update()).one()
    document = {key: value for key, value in {**kept.document, **changes}.items() if value is not None}
    kept.document, kept.updated_at = document, now_us()
    return document


def find_preferences(session: Session, name: str) -> Mapping[str, Any]:
    """Returns what the page keeps for the user. It is empty until something is stored."""
    return session.scalar(select(Preferences.document).where(Preferences.owner == name)) or {}
