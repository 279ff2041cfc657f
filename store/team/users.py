"""Users: their roles, and whether they are disabled."""

from collections.abc import Collection, Sequence
import re

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from store.db import columns
from store.db.database import now_us
from store.tables import User
from store.team import access
from store.team.callers import BOOTSTRAP
from store.team.facts import UserFacts
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.requests import USER_NAME
from torchyard.contract.team import Role


def add(session: Session, name: str, role: Role) -> UserFacts:
    """Adds a user. Raises Conflict if the name was ever used, as it may own jobs."""
    user = User(name=name, role=role)
    try:
        with session.begin_nested():
            session.add(user)
    except IntegrityError:
        raise Conflict(f"there is a user {name} already, or there was one: choose another name") from None
    session.refresh(user)
    return columns.read(UserFacts, user)


def get(session: Session, name: str) -> User:
    """Returns the user. Raises NotFound."""
    user = session.get(User, name) if re.fullmatch(USER_NAME, name) else None
    if user is None:
        raise NotFound(f"there is no user {name[:100]!r}")
    return user


def lock(session: Session, name: str) -> None:
    """Makes other transactions that count what the user has wait for the end of this one."""
    session.execute(select(User.name).where(User.name == name).with_for_update(key_share=True))


def lock_free(session: Session, names: Collection[str]) -> set[str]:
    """Locks those of the users whom no other transaction has locked, as `lock` does, and returns them."""
    query = select(User.name).where(User.name.in_(names)).order_by(User.name)
    return set(session.scalars(query.with_for_update(key_share=True, skip_locked=True)))


def list_all(session: Session, *, limit: int, after: str | None = None) -> Sequence[UserFacts]:
    """Returns users by name; with `after` (a name), only those behind it."""
    query = columns.select(UserFacts, User).order_by(User.name).limit(limit)
    rows = session.execute(query if after is None else query.where(User.name > after))
    return [UserFacts(*row) for row in rows]


def change(session: Session, name: str, *, role: Role | None = None, disabled: bool | None = None) -> UserFacts:
    """Sets the role, or disables or enables the user. Their open streams are checked again at once.

    Raises NotFound, and Conflict for the bootstrap administrator.
    """
    user = get(session, name)
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
    return columns.read(UserFacts, user)
