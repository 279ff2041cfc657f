"""The tokens by which remote workers speak to the service: one of each worker, of which a digest is stored."""

from dataclasses import dataclass
from datetime import timedelta
import hmac
import secrets

from sqlalchemy import bindparam, case, delete, or_, select, update
from sqlalchemy.orm import Session

from store.cluster.workers import is_alive
from store.db.database import in_us, now_us
from store.db.prepared import Prepared
from store.tables import Worker, WorkerToken
from store.team.facts import digest_of

PREFIX = "tyw_"
_WORKER = "wrk_"
_WARNED_FOR = timedelta(minutes=10)

# Built once, because every request of a remote worker executes the first, and every heartbeat the second.
_OWN = WorkerToken.worker_id == bindparam("worker")
_LIVE = Prepared(select(WorkerToken.digest, WorkerToken.boot).where(_OWN, WorkerToken.revoked_at.is_(None)))
_REFUSED = Prepared(select(WorkerToken.worker_id).where(_OWN, WorkerToken.refused_at > now_us() - in_us(_WARNED_FOR)))


@dataclass(frozen=True, slots=True)
class TokenUse:
    """A valid token."""

    worker_id: str
    boot: str | None
    """The boot of the host that has registered with it. None: none has yet."""


def issue(session: Session, worker_id: str) -> str:
    """Returns the text of a new token of the worker, which is not stored. An earlier one of the same worker ends."""
    secret = secrets.token_urlsafe(32)
    session.execute(delete(WorkerToken).where(WorkerToken.worker_id == worker_id))
    session.add(WorkerToken(worker_id=worker_id, digest=digest_of(secret)))
    session.flush()
    return f"{PREFIX}{worker_id.removeprefix(_WORKER)}_{secret}"


def find_worker(session: Session, token: str) -> str | None:
    """Returns the id of the worker whose token this is; None if it is unknown or revoked."""
    found = find_use(session, token)
    return None if found is None else found.worker_id


def find_use(session: Session, token: str) -> TokenUse | None:
    """Returns whose token this is, and which host uses it; None if it is unknown or revoked."""
    name, _, secret = token.removeprefix(PREFIX).partition("_")
    if not token.startswith(PREFIX) or not secret:
        return None
    worker_id = f"{_WORKER}{name}"
    row = _LIVE.first(session, {"worker": worker_id})
    if row is None or not hmac.compare_digest(digest_of(secret), row.digest):
        return None
    return TokenUse(worker_id, row.boot)


def use_from(session: Session, worker_id: str, boot: str) -> bool:
    """Has the host of that boot use the token. Returns False, and notes it, while another one is alive that does.

    Who takes over may be the same host, started again: that it was refused before says nothing of another one.
    """
    is_away = ~select(Worker.id).where(Worker.id == worker_id, is_alive()).exists()
    may_use = or_(WorkerToken.boot.is_(None), WorkerToken.boot == boot, is_away)
    own = WorkerToken.worker_id == worker_id
    refused_at = case((WorkerToken.boot == boot, WorkerToken.refused_at), else_=None)
    taken = update(WorkerToken).where(own, may_use).values(boot=boot, refused_at=refused_at)
    if session.execute(taken.returning(WorkerToken.worker_id)).first() is not None:
        return True
    session.execute(update(WorkerToken).where(own).values(refused_at=now_us()))
    return False


def was_refused(session: Session, worker_id: str) -> bool:
    """Returns whether another host with the worker's token was refused within the last ten minutes."""
    return bool(_REFUSED.read(session, {"worker": worker_id}))


def revoke(session: Session, worker_id: str) -> None:
    """Ends the worker's token. Repeating it changes nothing."""
    live = WorkerToken.worker_id == worker_id, WorkerToken.revoked_at.is_(None)
    session.execute(update(WorkerToken).where(*live).values(revoked_at=now_us()))
