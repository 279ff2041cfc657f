"""What a worker is to do for the reaches into its attempts."""

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select
from sqlalchemy.orm import Session

from store.db.database import now_us
from store.reaches.facts import ReachOrder
from store.tables import BrowserSession, Origin, Reach, Token, User
from store.team import access
from store.team.tokens import IS_LIVE
from torchyard.contract.reach.orders import Order


def list_orders(session: Session, attempt_id: int) -> tuple[ReachOrder, ...]:
    """Returns the meetings to which the worker of an open attempt is to come, and the reaches that it is to end."""
    query = select(Reach, is_permitted()).where(Reach.attempt_id == attempt_id, Reach.until > now_us())
    found = session.execute(query.order_by(Reach.id).execution_options(populate_existing=True)).all()
    orders = (_order_of(row, permitted=permitted) for row, permitted in found)
    return tuple(order for order in orders if order is not None)


def is_permitted(of: type[Reach] | type[Origin] = Reach) -> ColumnElement[bool]:
    """Returns the condition that the credential with which it was opened is valid, for the same role."""
    user = exists().where(User.name == of.user, User.role == of.role, User.disabled_at.is_(None))
    token = exists().where(Token.id == of.token_id, IS_LIVE)
    login = exists().where(BrowserSession.digest == of.session, BrowserSession.expires_at > now_us())
    return and_(user, or_(of.token_id.is_(None), token), or_(of.session.is_(None), login))


def forget_attempt(session: Session, attempt_id: int) -> None:
    """Ends all reaches into an attempt that has ended."""
    removed = delete(Reach).where(Reach.attempt_id == attempt_id).returning(Reach.job_id)
    for job_id in {*session.scalars(removed, execution_options={"synchronize_session": False})}:
        access.announce(session, job_id)


def _order_of(row: Reach, *, permitted: bool) -> ReachOrder | None:
    if row.ended_at is not None or not permitted:
        return ReachOrder(row.id, "end", row.meeting) if row.has_started else None
    if row.secret is None or row.first == "worker":
        return None
    if row.has_started:
        return ReachOrder(row.id, "join", row.meeting, row.secret)
    return ReachOrder(row.id, "start", row.meeting, row.secret, Order.from_dict(row.order))
