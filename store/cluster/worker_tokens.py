"""The tokens by which remote workers speak to the service: one of each worker, of which a digest is stored."""

import hmac
import secrets

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.tables import Base, WorkerToken
from store.team.facts import digest_of

PREFIX = "tyw_"
_WORKER = "wrk_"

_TOKENS = Base.metadata.tables[WorkerToken.__tablename__]

# Built once, and of tables: every request of a remote worker executes it.
_LIVE = select(_TOKENS.c.digest).where(_TOKENS.c.worker_id == bindparam("id"), _TOKENS.c.revoked_at.is_(None))


def issue(session: Session, worker_id: str) -> str:
    """Returns the text of a new token of the worker, which is not stored. An earlier one of the same worker ends."""
    secret = secrets.token_urlsafe(32)
    session.execute(delete(WorkerToken).where(WorkerToken.worker_id == worker_id))
    session.add(WorkerToken(worker_id=worker_id, digest=digest_of(secret)))
    session.flush()
    return f"{PREFIX}{worker_id.removeprefix(_WORKER)}_{secret}"


def find_worker(session: Session, token: str) -> str | None:
    """Returns the id of the worker whose token this is; None if it is unknown or revoked."""
    name, _, secret = token.removeprefix(PREFIX).partition("_")
    if not token.startswith(PREFIX) or not secret:
        return None
    worker_id = f"{_WORKER}{name}"
    stored = session.connection().execute(_LIVE, {"id": worker_id}).scalar()
    if stored is None or not hmac.compare_digest(digest_of(secret), stored):
        return None
    return worker_id


def revoke(session: Session, worker_id: str) -> None:
    """Ends the worker's token. Repeating it changes nothing."""
    live = WorkerToken.worker_id == worker_id, WorkerToken.revoked_at.is_(None)
    session.execute(update(WorkerToken).where(*live).values(revoked_at=now_us()))
