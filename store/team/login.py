"""Logs users in: sessions of browsers, one-time codes that open a session, and failed logins by address.

Of cookies and codes only digests are stored.
"""

from collections.abc import Sequence
from datetime import timedelta
import hmac
import secrets

from sqlalchemy import case, delete, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from store.db import columns
from store.db.database import in_us, now_us
from store.db.upsert import upsert
from store.tables import Base, BrowserSession, FailedLogins, LoginCode, Token
from store.team import access, audit
from store.team.callers import Caller
from store.team.facts import BrowserSessionFacts, ListedSession, NewLoginCode, OpenedSession, digest_of
from store.team.tokens import IS_LIVE
from torchyard.contract.errors import NotAuthorized, NotFound, TooManyRequests

MAX_SESSIONS = 100
"""Of one token. The oldest ends when there are more."""
_SESSION = timedelta(days=7)
_USE_US = 60_000_000
_MOST_ADDRESS = 64
_CODE = timedelta(minutes=1)
MAX_CODES = 10
"""Valid codes of one credential. The oldest ends when there are more."""
_WITHIN_US = 60_000_000
"""The time for which the limit of failed logins is given."""
_DELETED_PER_CALL = 100


def open_session(session: Session, credential: str, *, caller: Caller, exec: bool = False) -> OpenedSession:
    """Opens a browser session for a credential of the caller, and returns it with its two secrets.

    `exec`: whether it may reach into running jobs, too.
    """
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
        address=caller.address[:_MOST_ADDRESS],
        exec=exec,
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    audit.add(session, caller, "session.open", caller.name)
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


def list_sessions(session: Session, user: str, *, credential: str | None) -> Sequence[ListedSession]:
    """Returns the user's browser sessions that have not ended, the last used first.

    `credential`: the digest of the bootstrap administrator's token, if the user is that one.
    """
    theirs = BrowserSession.credential.in_(select(Token.id).where(Token.user == user, IS_LIVE))
    if credential is not None:
        theirs = or_(theirs, BrowserSession.credential == credential)
    last = func.coalesce(BrowserSession.used_at, BrowserSession.created_at)
    query = columns.select(ListedSession, BrowserSession).where(theirs, BrowserSession.expires_at > now_us())
    return [ListedSession(*row) for row in session.execute(query.order_by(last.desc(), BrowserSession.digest))]


def close_session(session: Session, digest: str, *, caller: Caller) -> None:
    """Ends the caller's browser session whose cookie has this digest. Its streams end, too."""
    _delete_session(session, digest, user=caller.name)
    audit.add(session, caller, "session.close", caller.name)


def end_session(session: Session, session_id: str, *, user: str, credential: str | None, caller: Caller) -> None:
    """Ends a browser session of the user. `session_id`: of `list_sessions`. Raises NotFound."""
    theirs = list_sessions(session, user, credential=credential)
    ended = next((each for each in theirs if each.id == session_id), None)
    if ended is None:
        raise NotFound(f"there is no session {session_id[:100]!r}")
    _delete_session(session, ended.digest, user=user)
    audit.add(session, caller, "session.end", f"{session_id} of {user}")


def make_code(session: Session, credential: str, *, caller: Caller) -> NewLoginCode:
    """Returns a new code for the credential: a token's id, or the digest of the administrator's token."""
    audit.add(session, caller, "session.code", caller.name)
    _forget(session, LoginCode, LoginCode.digest, LoginCode.expires_at)
    theirs = select(LoginCode.digest).where(LoginCode.credential == credential)
    # Who makes codes at the same time may leave some more: none of them waits for another.
    oldest = theirs.order_by(LoginCode.expires_at.desc()).offset(MAX_CODES - 1).with_for_update(skip_locked=True)
    session.execute(delete(LoginCode).where(LoginCode.digest.in_(oldest)))
    code = secrets.token_urlsafe(32)
    row = LoginCode(digest=digest_of(code), credential=credential, expires_at=now_us() + in_us(_CODE))
    session.add(row)
    session.flush()
    session.refresh(row)
    return NewLoginCode(code, row.expires_at)


def find_code(session: Session, code: str) -> str | None:
    """Returns the credential for which the code was made, None if it is not valid. The code stays valid."""
    valid = LoginCode.digest == digest_of(code), LoginCode.expires_at > now_us()
    return session.scalars(select(LoginCode.credential).where(*valid)).first()


def take_code(session: Session, code: str) -> bool:
    """Ends the code. Returns whether it was valid until now: True once, however many take it."""
    valid = LoginCode.digest == digest_of(code), LoginCode.expires_at > now_us()
    return session.scalars(delete(LoginCode).where(*valid).returning(LoginCode.digest)).first() is not None


def count_failed(session: Session, address: str, *, most: int, caller: Caller, audited: bool) -> None:
    """Counts a failed login of an address, and adds it to the audit if it is to be.

    Raises TooManyRequests, and adds nothing, if the address has had more than `most` in a minute.
    """
    wait_us = _count_failed(session, address, most=most)
    if wait_us:
        seconds = -(-wait_us // 1_000_000)
        raise TooManyRequests(
            f"too many failed logins from {caller.address}; try again in {seconds} s", retry_after=seconds
        )
    if audited:
        audit.add(session, caller, "login", "", outcome=NotAuthorized.code)


def _delete_session(session: Session, digest: str, *, user: str) -> None:
    session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))
    access.announce(session, user)


def _count_failed(session: Session, address: str, *, most: int) -> int:
    """Counts a failed login, of which an address may have `most` at once, and as many in a minute.

    Returns 0, or if there were too many, in how many microseconds one may be counted again.
    """
    _forget(session, FailedLogins, FailedLogins.address, FailedLogins.forgotten_at)
    each = _WITHIN_US // most
    later = case((FailedLogins.forgotten_at > now_us(), FailedLogins.forgotten_at), else_=now_us()) + each
    new = upsert(session, FailedLogins).values(address=address, forgotten_at=now_us() + each)
    counted = new.on_conflict_do_update(
        index_elements=[FailedLogins.address], set_={"forgotten_at": later}, where=later <= now_us() + _WITHIN_US
    )
    if session.execute(counted.returning(FailedLogins.address)).first() is not None:
        return 0
    wait = select(FailedLogins.forgotten_at + each - _WITHIN_US - now_us()).where(FailedLogins.address == address)
    return max(1, session.scalars(wait).first() or 0)


def _forget(
    session: Session, table: type[Base], key: InstrumentedAttribute[str], until: InstrumentedAttribute[int]
) -> None:
    """Deletes old rows. Those that another transaction has at hand are left to it."""
    old = select(key).where(until < now_us()).limit(_DELETED_PER_CALL).with_for_update(skip_locked=True)
    session.execute(delete(table).where(key.in_(old)))
