"""Personal tokens, and the sessions of browsers. Of both only a digest of the secret is stored."""

from collections.abc import Collection, Sequence
from datetime import timedelta
import hmac
import secrets

from sqlalchemy import and_, bindparam, delete, func, or_, select, update
from sqlalchemy.orm import Session

from store.db import columns
from store.db.database import in_us, now_us
from store.ids import new_id
from store.tables import Base, BrowserSession, Token
from store.team import access, users
from store.team.facts import BrowserSessionFacts, Identity, ListedSession, OpenedSession, TokenFacts, digest_of
from torchyard.contract.errors import Conflict, NotAuthorized, NotFound
from torchyard.contract.team import Role, Scope

_PREFIX = "ty"
_USE_US = 60_000_000
_SESSION = timedelta(days=7)
_DELETED_PER_CALL = 100
_MOST_ADDRESS = 64
MAX_TOKENS = 100
"""Of one user, which are neither revoked nor expired."""
MAX_SESSIONS = 100
"""Of one token. The oldest ends when there are more."""
_IS_LIVE = and_(Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > now_us()))

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
) -> tuple[TokenFacts, str]:
    """Returns a new token of the user, and its text, which is not stored. `lifetime` None: it does not expire.

    It expires at the latest with `made_by`, the id of the token that is used to make it. Raises NotFound if there is
    no such user, NotAuthorized if that token is revoked, and Conflict if the user has too many.
    """
    users.get(session, user)
    users.lock(session, user)
    live = select(func.count()).select_from(Token).where(Token.user == user, _IS_LIVE)
    if (count := session.execute(live).scalar_one()) >= MAX_TOKENS:
        raise Conflict(f"{user} has {count} tokens, and may have {MAX_TOKENS}: revoke some first")
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
    return columns.read(TokenFacts, row), f"{_PREFIX}_{row.id.removeprefix('tok_')}_{secret}"


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


def list_of(session: Session, user: str | None, *, limit: int, before: str | None = None) -> Sequence[TokenFacts]:
    """Returns the tokens of a user, or of all users, newest first; with `before` (an id), only older ones."""
    query = columns.select(TokenFacts, Token).order_by(Token.id.desc()).limit(limit)
    if user is not None:
        query = query.where(Token.user == user)
    rows = session.execute(query if before is None else query.where(Token.id < before))
    return [TokenFacts(*row) for row in rows]


def is_revoked(session: Session, token_id: str) -> bool:
    """Returns whether there is such a token, and it is revoked already."""
    query = select(Token.id).where(Token.id == token_id, Token.revoked_at.is_not(None))
    return session.scalar(query) is not None


def revoke(session: Session, token_id: str, *, user: str | None) -> str:
    """Revokes a token, and those that were made with it; with `user`, only one of theirs. Repeating it changes nothing.

    Their streams and sessions end. Returns the name of its user. Raises NotFound.
    """
    owned = Token.user == user if user is not None else Token.id == token_id
    row = session.scalars(select(Token).where(Token.id == token_id, owned).with_for_update()).first()
    if row is None:
        raise NotFound(f"there is no token {token_id[:100]!r}")
    ended, found = [row.id], [row]
    while found:  # level by level: what was made with it, with that, …
        found = session.scalars(select(Token).where(Token.made_by.in_([made.id for made in found]))).all()
        ended += [made.id for made in found]
    concerned = Token.id.in_(ended), Token.revoked_at.is_(None)
    for user_name in session.scalars(select(Token.user).where(Token.id.in_(ended)).distinct()):
        access.announce(session, user_name)
    session.execute(update(Token).where(*concerned).values(revoked_at=now_us()))
    return row.user


def open_session(session: Session, credential: str, *, address: str = "") -> OpenedSession:
    """Opens a browser session for a credential. `address`: from where."""
    expired = select(BrowserSession.digest).where(BrowserSession.expires_at < now_us()).limit(_DELETED_PER_CALL)
    session.execute(delete(BrowserSession).where(BrowserSession.digest.in_(expired)))
    theirs = select(BrowserSession.digest).where(BrowserSession.credential == credential)
    oldest = theirs.order_by(BrowserSession.created_at.desc()).offset(MAX_SESSIONS - 1)
    session.execute(delete(BrowserSession).where(BrowserSession.digest.in_(oldest)))
    cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    row = BrowserSession(
        digest=digest_of(cookie),
        csrf_digest=digest_of(csrf),
        credential=credential,
        expires_at=now_us() + in_us(_SESSION),
        used_at=now_us(),
        address=address[:_MOST_ADDRESS],
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    return OpenedSession(row.digest, cookie, csrf, row.expires_at)


def find_session(session: Session, cookie: str, *, csrf: str) -> BrowserSessionFacts | None:
    """Returns the session of the cookie, or None if it has ended or the second secret is not the session's."""
    row = find_session_by_digest(session, digest_of(cookie))
    return row if row is not None and hmac.compare_digest(row.csrf_digest, digest_of(csrf)) else None


def find_session_by_digest(session: Session, digest: str) -> BrowserSessionFacts | None:
    """Returns the session whose cookie has this digest, or None if it has ended."""
    is_stale = or_(BrowserSession.used_at.is_(None), BrowserSession.used_at < now_us() - _USE_US)
    query = columns.select(BrowserSessionFacts, BrowserSession).add_columns(is_stale)
    query = query.where(BrowserSession.digest == digest, BrowserSession.expires_at > now_us())
    row = session.execute(query).first()
    return None if row is None else BrowserSessionFacts(*row)


def mark_session_used(session: Session, digest: str, *, address: str) -> None:
    """Stores that the session is used now, and from where."""
    used = {"used_at": now_us(), "address": address[:_MOST_ADDRESS]}
    session.execute(update(BrowserSession).where(BrowserSession.digest == digest).values(used))


def sessions_of(session: Session, user: str, *, credential: str | None) -> Sequence[ListedSession]:
    """Returns the user's browser sessions that have not ended, the last used first.

    `credential`: the digest of the bootstrap administrator's token, if the user is that one.
    """
    theirs = BrowserSession.credential.in_(select(Token.id).where(Token.user == user, _IS_LIVE))
    if credential is not None:
        theirs = or_(theirs, BrowserSession.credential == credential)
    last = func.coalesce(BrowserSession.used_at, BrowserSession.created_at)
    query = columns.select(ListedSession, BrowserSession).where(theirs, BrowserSession.expires_at > now_us())
    return [ListedSession(*row) for row in session.execute(query.order_by(last.desc(), BrowserSession.digest))]


def close_session(session: Session, digest: str) -> None:
    """Ends the session whose cookie has this digest."""
    session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))


def _end_with(session: Session, row: Token, made_by: str) -> None:
    """Makes the token expire at the latest with another. Raises NotAuthorized if that has ended."""
    # Locked, so that it is not revoked before this transaction ends.
    parent = session.scalars(select(Token).where(Token.id == made_by, _IS_LIVE).with_for_update(read=True)).first()
    if parent is None:
        raise NotAuthorized("the token has ended")
    if parent.expires_at is not None and (row.expires_at is None or row.expires_at > parent.expires_at):
        row.expires_at = parent.expires_at
        session.flush()


def _identity(session: Session, token_id: str, *, digest: str | None = None) -> Identity | None:
    found = session.connection().execute(_VALID, {"id": token_id}).first()
    if found is None:
        return None
    stored, scopes, use_is_stale, left_us, name, role_name = found
    if digest is not None and not hmac.compare_digest(digest, stored):
        return None
    role = Role(role_name)
    allowed = role.scopes & {Scope.ACCOUNT, *(Scope(name) for name in scopes)}
    return Identity(name, role, allowed, token_id, use_is_stale=bool(use_is_stale), left_us=left_us)
