"""The host names by which a browser comes to a terminal in a running attempt, or to one of its ports."""

from base64 import b32encode
from datetime import timedelta
import secrets
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from store.db.database import in_us, now_us
from store.reaches import reaches
from store.reaches.facts import OpenedOrigin, OriginFacts
from store.reaches.orders import is_permitted
from store.tables import Attempt, Job, Origin
from store.team import audit, users
from store.team.callers import Caller
from store.team.facts import digest_of
from torchyard.contract.errors import Conflict

TICKET = timedelta(seconds=30)
"""How long a ticket opens its origin, once."""
MOST_OF_USER = 100
"""Origins that a user has at once."""
_LASTS = timedelta(hours=12)
_NAME_BYTES = 16
_DELETED_PER_CALL = 100


def open_origin(
    session: Session, job_id: str, *, port: int | None, caller: Caller, login: str, by_operators: bool = False
) -> OpenedOrigin:
    """Returns a host name with a ticket, for the browser session with the digest `login`.

    `port`: of the job, which has the same name as long as the session and the attempt last; None for a terminal, which
    has a new one. Raises NotFound, Forbidden, and Conflict for a job that does not run, or too many origins.
    """
    reaches.check_allowed(session, job_id, caller, by_operators=by_operators)
    attempt = reaches.lock_running(session, job_id)
    users.lock(session, caller.name)  # the count below would miss what another request adds meanwhile
    old = select(Origin.name).where(Origin.until <= now_us()).limit(_DELETED_PER_CALL)
    session.execute(delete(Origin).where(Origin.name.in_(old)))
    ticket = secrets.token_urlsafe(32)
    lasts: dict[str, Any] = {
        "ticket": digest_of(ticket),
        "ticket_until": now_us() + in_us(TICKET),
        "until": now_us() + in_us(_LASTS),
        "role": caller.role,
        "token_id": caller.token_id,
    }
    same = (Origin.user == caller.name, Origin.session == login, Origin.attempt_id == attempt.id, Origin.port == port)
    name = None if port is None else _renew(session, *same, **lasts)
    if name is None:
        _check_room(session, caller.name)
        name = b32encode(secrets.token_bytes(_NAME_BYTES)).decode().rstrip("=").lower()
        row = Origin(
            name=name, job_id=job_id, attempt_id=attempt.id, user=caller.name, session=login, port=port, **lasts
        )
        session.add(row)
        session.flush()
    audit.add(session, caller, "origin.open", f"{'terminal' if port is None else f'port {port}'} of {job_id}")
    until = session.execute(select(Origin.ticket_until).where(Origin.name == name)).scalar_one()
    return OpenedOrigin(name, ticket, until)


def take_ticket(session: Session, name: str, ticket: str) -> str | None:
    """Returns a new cookie for the ticket, which is used by that. None: the ticket is not valid any more."""
    cookie = secrets.token_urlsafe(32)
    valid = (Origin.name == name, Origin.ticket == digest_of(ticket), Origin.ticket_until > now_us())
    taken = session.scalar(
        update(Origin)
        .where(*valid, is_permitted(Origin))
        .values(ticket=None, cookie=digest_of(cookie))
        .returning(Origin.name),
        execution_options={"synchronize_session": False},
    )
    return None if taken is None else cookie


def find(session: Session, name: str, cookie: str) -> OriginFacts | None:
    """Returns what the cookie opens at the origin. None: nothing, or its session or its user's right has ended."""
    runs = select(Attempt.id).where(Attempt.id == Origin.attempt_id, Attempt.ended_at.is_(None)).exists()
    valid = (Origin.name == name, Origin.cookie == digest_of(cookie), Origin.until > now_us())
    query = select(Origin, Job.name, runs).join(Job, Job.id == Origin.job_id)
    row = session.execute(query.where(*valid, is_permitted(Origin))).first()
    if row is None:
        return None
    found, job_name, is_running = row
    return OriginFacts(
        name=found.name,
        job_id=found.job_id,
        job_name=job_name,
        user=found.user,
        role=found.role,
        token_id=found.token_id,
        session=found.session,
        port=found.port,
        reach_id=found.reach_id,
        is_running=bool(is_running),
    )


def set_reach(session: Session, name: str, reach_id: str) -> None:
    """Notes the reach of a terminal. The one before is no longer joined from there."""
    session.execute(update(Origin).where(Origin.name == name).values(reach_id=reach_id))


def _renew(session: Session, *same: ColumnElement[bool], **lasts: Any) -> str | None:
    """Gives the origin of a port a new ticket, if there is one. Returns its name."""
    renewed = update(Origin).where(*same, _is_open()).values(**lasts).returning(Origin.name)
    return session.scalar(renewed, execution_options={"synchronize_session": False})


def _check_room(session: Session, user: str) -> None:
    count = session.execute(
        select(func.count()).select_from(Origin).where(Origin.user == user, _is_open())
    ).scalar_one()
    if count >= MOST_OF_USER:
        raise Conflict(
            f"{user} has {count} open terminals and ports; the maximum is {MOST_OF_USER}: they end in 12 hours"
        )


def _is_open() -> ColumnElement[bool]:
    runs = select(Attempt.id).where(Attempt.id == Origin.attempt_id, Attempt.ended_at.is_(None)).exists()
    return (Origin.until > now_us()) & runs
