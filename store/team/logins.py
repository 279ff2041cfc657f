"""One-time codes that open a session, of which only digests are stored, and the failed logins of each address."""

from datetime import timedelta
import secrets

from sqlalchemy import case, delete, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from store.db.database import in_us, now_us
from store.db.upsert import upsert
from store.tables import Base, FailedLogins, LoginCode
from store.team.facts import NewLoginCode, digest_of

_LIFETIME = timedelta(minutes=1)
MAX_CODES = 10
"""Valid codes of one credential. The oldest ends when there are more."""
_WITHIN_US = 60_000_000
"""The time for which the limit of failed logins is given."""
_DELETED_PER_CALL = 100


def make_code(session: Session, credential: str) -> NewLoginCode:
    """Returns a new code for the credential: a token's id, or the digest of the administrator's token."""
    _forget(session, LoginCode, LoginCode.digest, LoginCode.expires_at)
    theirs = select(LoginCode.digest).where(LoginCode.credential == credential)
    # Who makes codes at the same time may leave some more: none of them waits for another.
    oldest = theirs.order_by(LoginCode.expires_at.desc()).offset(MAX_CODES - 1).with_for_update(skip_locked=True)
    session.execute(delete(LoginCode).where(LoginCode.digest.in_(oldest)))
    code = secrets.token_urlsafe(32)
    row = LoginCode(digest=digest_of(code), credential=credential, expires_at=now_us() + in_us(_LIFETIME))
    session.add(row)
    session.flush()
    session.refresh(row)
    return NewLoginCode(code, row.expires_at)


def find_code(session: Session, code: str) -> str | None:
    """Returns the credential for which the code was made, None if it is not valid. The code stays valid."""
    valid = LoginCode.digest == digest_of(code), LoginCode.expires_at > now_us()
    return session.scalars(select(LoginCode.credential).where(*valid)).first()


def take_code(session: Session, code: str) -> str | None:
    """Returns what `find_code` does, and ends the code: of all who take it at the same time, one gets it."""
    valid = LoginCode.digest == digest_of(code), LoginCode.expires_at > now_us()
    return session.scalars(delete(LoginCode).where(*valid).returning(LoginCode.credential)).first()


def count_failed(session: Session, address: str, *, most: int) -> int:
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
