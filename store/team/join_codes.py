"""Codes by which a machine becomes a worker, or a user logs in: each is good for some minutes, and once."""

from collections.abc import Sequence
from datetime import timedelta
import secrets

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.orm import Session

from store.db.database import in_us, now_us
from store.tables import JoinCode
from store.team import audit, users
from store.team.callers import Caller
from store.team.facts import NewJoinCode, TakenCode, digest_of
from torchyard.contract.errors import Conflict, NotAuthorized
from torchyard.contract.team.codes import CodeKind

MAX_CODES = 100
"""Codes that may be used at one time."""
_LIFE = timedelta(minutes=10)
_REMEMBERED = timedelta(days=7)
"""For so long the refusal of a code says whether it was used, or came too late."""


def make(
    session: Session, kind: CodeKind, name: str, *, users_of: Sequence[str] | None = None, caller: Caller
) -> NewJoinCode:
    """Returns a new code for a worker or a user of this name. Of its secret only a digest is stored.

    `users_of`: whose jobs the worker takes; None: all. Raises NotFound if there is no such user, and Conflict if there
    are too many codes.
    """
    if kind == "user":
        users.find(session, name)
    session.execute(delete(JoinCode).where(JoinCode.expires_at < now_us() - in_us(_REMEMBERED)))
    usable = (
        select(func.count()).select_from(JoinCode).where(JoinCode.used_at.is_(None), JoinCode.expires_at > now_us())
    )
    if (count := session.execute(usable).scalar_one()) >= MAX_CODES:
        raise Conflict(f"there are {count} unused codes; the maximum is {MAX_CODES}: wait some minutes")
    secret = secrets.token_urlsafe(24)
    row = JoinCode(
        digest=digest_of(secret),
        kind=kind,
        name=name,
        made_by=caller.name,
        expires_at=now_us() + in_us(_LIFE),
        users=None if users_of is None else sorted({*users_of}),
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    audit.add(session, caller, f"{kind}.code", name)
    return NewJoinCode(secret, row.expires_at)


def find(session: Session, secret: str, *, key: str) -> TakenCode:
    """Returns what the code is for; it stays valid. Raises NotAuthorized, which says why it is not."""
    row = session.scalars(select(JoinCode).where(*_usable(secret, key))).first()
    if row is None:
        raise _refusal(session, secret)
    return _taken(row)


def take(session: Session, secret: str, *, key: str) -> TakenCode:
    """Ends the code for all others, and returns what it is for: to one, however many take it.

    `key`: of the machine, which may take it again while it is not too late, if the answer was lost. Raises
    NotAuthorized, which says whether it was used, is too late, or is of another service.
    """
    used = update(JoinCode).where(*_usable(secret, key)).values(used_at=now_us(), used_by=digest_of(key))
    taken = session.execute(used.returning(JoinCode)).scalar()
    if taken is None:
        raise _refusal(session, secret)
    return _taken(taken)


def note_given(session: Session, secret: str, given: str) -> None:
    """Notes which worker, or which token, a code that was taken has made."""
    session.execute(update(JoinCode).where(JoinCode.digest == digest_of(secret)).values(given=given))


def _usable(secret: str, key: str) -> Sequence[ColumnElement[bool]]:
    unused_or_own = or_(JoinCode.used_at.is_(None), JoinCode.used_by == digest_of(key))
    return JoinCode.digest == digest_of(secret), JoinCode.expires_at > now_us(), unused_or_own


def _taken(row: JoinCode) -> TakenCode:
    kind: CodeKind = "worker" if row.kind == "worker" else "user"
    return TakenCode(kind, row.name, row.made_by, users=row.users, given=row.given)


def _refusal(session: Session, secret: str) -> NotAuthorized:
    known = select(JoinCode.used_at, JoinCode.kind).where(JoinCode.digest == digest_of(secret))
    row = session.execute(known).first()
    again = "an administrator makes a new one with `torchyard workers add NAME` or `torchyard users code NAME`"
    if row is None:
        return NotAuthorized(f"this service has not made the code, or long ago: {again}")
    if row.used_at is not None:
        return NotAuthorized(f"the code was used: it is good once; {again}")
    return NotAuthorized(f"the code is too late: it is good for {_LIFE.total_seconds() / 60:g} minutes; {again}")
