"""Personal tokens. Of each only a digest of the secret is stored."""

from collections.abc import Collection
from datetime import timedelta
import hmac
import secrets

from sqlalchemy import and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from store import pages
from store.db import columns
from store.db.database import in_us, now_us
from store.ids import new_id
from store.pages import FactPage
from store.tables import Base, Token
from store.team import access, audit, users
from store.team.callers import Caller
from store.team.facts import Identity, digest_of
from store.team.limits import check_change
from torchyard.contract.errors import Conflict, NotAuthorized, NotFound
from torchyard.contract.team.roles import Role, Scope
from torchyard.contract.team.views import TokenView

_PREFIX = "ty"
_USE_US = 60_000_000
MAX_TOKENS = 100
"""Of one user, which are neither revoked nor expired."""
IS_LIVE = and_(Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > now_us()))
"""The condition that a token is neither revoked nor expired."""

_TOKENS, _USERS = Base.metadata.tables["tokens"], Base.metadata.tables["users"]

# Built once, and of tables: every request executes it.
_VALID = (
    select(
        _TOKENS.c.digest,
        _TOKENS.c.scopes,
        _TOKENS.c.used_at.is_(None) | (_TOKENS.c.used_at < now_us() - _USE_US),
        _TOKENS.c.expires_at - now_us(),
        _USERS.c.name,
        _USERS.c.role,
    )
    .join_from(_TOKENS, _USERS, _USERS.c.name == _TOKENS.c.user)
    .where(
        _TOKENS.c.id == bindparam("id"),
        _TOKENS.c.revoked_at.is_(None),
        or_(_TOKENS.c.expires_at.is_(None), _TOKENS.c.expires_at > now_us()),
        _USERS.c.disabled_at.is_(None),
    )
)


def make(
    session: Session,
    user: str,
    *,
    name: str,
    scopes: Collection[Scope],
    lifetime: timedelta | None,
    made_by: str | None = None,
    caller: Caller,
) -> tuple[TokenView, str]:
    """Returns a new token of the user, and its text, which is not stored. `lifetime` None: it does not expire.

    It expires at the latest with `made_by`, the id of the token that is used to make it. Raises NotFound if there is
    no such user, NotAuthorized if that token is revoked, and Conflict if the user has too many.
    """
    users.find(session, user)
    users.lock(session, user)
    live = select(func.count()).select_from(Token).where(Token.user == user, IS_LIVE)
    if (count := session.execute(live).scalar_one()) >= MAX_TOKENS:
        raise Conflict(f"{user} has {count} tokens; the maximum is {MAX_TOKENS}: revoke some first")
    secret = secrets.token_urlsafe(32)
    row = Token(
        id=new_id("tok"),
        user=user,
        made_by=made_by,
        name=name,
        digest=digest_of(secret),
        scopes=sorted(scopes),
        expires_at=None if lifetime is None else now_us() + in_us(lifetime),
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    if made_by is not None:
        _end_with(session, row, made_by)
    audit.add(session, caller, "token.make", f"{row.id} of {user}")
    return columns.read(TokenView, row), f"{_PREFIX}_{row.id.removeprefix('tok_')}_{secret}"


def find(session: Session, text: str) -> Identity | None:
    """Returns whose token this is, or None if it is not valid: unknown, expired, revoked, or of a disabled user."""
    prefix, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    if prefix != _PREFIX or not secret:
        return None
    return _identity(session, f"tok_{token_id}", digest=digest_of(secret))


def find_by_id(session: Session, token_id: str) -> Identity | None:
    """Returns whose token has this id, or None if it is not valid any more."""
    return _identity(session, token_id)


def mark_used(session: Session, token_id: str) -> None:
    """Stores that the token is used now."""
    session.execute(update(Token).where(Token.id == token_id).values(used_at=now_us()))


def list_owned(session: Session, user: str, *, limit: int, before: str | None = None) -> FactPage[TokenView]:
    """Returns the tokens of a user, newest first; with `before` (an id), only older ones."""
    query = columns.select(TokenView, Token).where(Token.user == user).order_by(Token.id.desc()).limit(limit + 1)
    rows = session.execute(query if before is None else query.where(Token.id < before))
    return pages.first(columns.views(TokenView, rows), limit)


def revoke(session: Session, token_id: str, *, user: str | None, caller: Caller) -> None:
    """Revokes a token, and those that were made with it; with `user`, only one of theirs. Repeating it changes nothing.

    Their streams and sessions end. Raises NotFound, and QuotaExceeded where it is repeated without end.
    """
    if _is_revoked(session, token_id):  # nothing changes, and it may be sent without end
        check_change(session, caller.name)
    owned = Token.user == user if user is not None else Token.id == token_id
    row = session.scalars(select(Token).where(Token.id == token_id, owned).with_for_update()).first()
    if row is None:
        raise NotFound(f"there is no token {token_id[:100]!r}")
    ended, level = [row.id], [row]
    while level:  # level by level: what was made with it, with that, …
        level = session.scalars(select(Token).where(Token.made_by.in_([token.id for token in level]))).all()
        ended += [token.id for token in level]
    concerned = Token.id.in_(ended), Token.revoked_at.is_(None)
    for user_name in session.scalars(select(Token.user).where(Token.id.in_(ended)).distinct()):
        access.announce(session, user_name)
    session.execute(update(Token).where(*concerned).values(revoked_at=now_us()))
    audit.add(session, caller, "token.revoke", f"{token_id} of {row.user}")


def _is_revoked(session: Session, token_id: str) -> bool:
    """Returns whether there is such a token, and it is revoked already."""
    query = select(Token.id).where(Token.id == token_id, Token.revoked_at.is_not(None))
    return session.scalar(query) is not None


def _end_with(session: Session, row: Token, made_by: str) -> None:
    """Makes the token expire at the latest with another. Raises NotAuthorized if that has ended."""
    # Locked, so that it is not revoked before this transaction ends.
    parent = session.scalars(select(Token).where(Token.id == made_by, IS_LIVE).with_for_update(read=True)).first()
    if parent is None:
        raise NotAuthorized("the token has ended")
    if parent.expires_at is not None and (row.expires_at is None or row.expires_at > parent.expires_at):
        row.expires_at = parent.expires_at
        session.flush()


def _identity(session: Session, token_id: str, *, digest: str | None = None) -> Identity | None:
    row = session.connection().execute(_VALID, {"id": token_id}).first()
    if row is None:
        return None
    stored, scopes, use_is_stale, left_us, name, role_name = row
    if digest is not None and not hmac.compare_digest(digest, stored):
        return None
    role = Role(role_name)
    allowed = role.scopes & {Scope.ACCOUNT, *(Scope(name) for name in scopes)}
    return Identity(name, role, allowed, token_id, use_is_stale=bool(use_is_stale), left_us=left_us)
