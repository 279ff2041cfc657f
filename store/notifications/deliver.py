"""Delivers messages: who sends one takes it for a time, and says how that went. Each is sent at least once."""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from store.db.database import in_us, now_us
from store.notifications import targets
from store.notifications.facts import MessageFacts
from store.notifications.signals import brief
from store.secret_keys import SecretKeys
from store.tables import Message, NotificationTarget
from torchyard.contract.errors import ConfigError

MOST_AT_ONCE = 4
"""Messages of one user that are sent at the same time. Of one target there is one."""
KEPT = timedelta(days=7)
"""How long a message is listed."""
TRIED = timedelta(days=2)
"""A message that waits for longer is given up, as its user was disabled or no controller ran."""

_UNOPENED_AGAIN_S = 900.0
_DELETED_PER_CALL = 1000


def has_due(session: Session) -> bool:
    """Returns whether a message is due that nobody sends, and whose target gets something now."""
    heard = exists().where(NotificationTarget.id == Message.target_id, targets.is_heard())
    return session.execute(select(exists().where(_is_due(), heard))).scalar_one()


def claim(session: Session, keys: SecretKeys, *, count: int, lease_s: float) -> list[MessageFacts]:
    """Takes up to `count` messages that are due, for so many seconds. Who does not answer until then has lost them.

    Users take turns; of one target there is never a second message on its way. A message whose address cannot be
    decrypted fails.
    """
    chosen = session.execute(_due(count)).all()
    concerned = {row.target_id for row in chosen}
    # As fan-out locks them, one after the other: what is seen below is what others have left.
    locked = select(NotificationTarget).where(NotificationTarget.id.in_(concerned)).order_by(NotificationTarget.id)
    free = {
        row.id: row
        for row in session.scalars(
            locked.with_for_update(key_share=True, skip_locked=True).execution_options(populate_existing=True)
        )
    }
    ids = [row.id for row in chosen if row.target_id in free]
    taken = (
        update(Message)
        .where(Message.id.in_(ids), _is_due(), ~_has_one_on_its_way())
        .values(attempts=Message.attempts + 1, leased_until=now_us() + int(lease_s * 1_000_000))
        .returning(Message, (now_us() - Message.created_at).label("age"))
    )
    rows = session.execute(taken, execution_options={"synchronize_session": False}).all() if ids else []
    order = {message_id: number for number, message_id in enumerate(ids)}
    rows = sorted(rows, key=lambda row: order[row.Message.id])
    claimed = [_open_message(session, keys, row.Message, free[row.Message.target_id], age=row.age) for row in rows]
    return [each for each in claimed if each is not None]


def mark_delivered(session: Session, message_id: str) -> None:
    """Stores that the target has a message. Repeating it changes nothing."""
    _note_at_target(session, message_id, delivered_at=now_us(), error=None)
    session.execute(
        update(Message)
        .where(Message.id == message_id, Message.delivered_at.is_(None))
        .values(delivered_at=now_us(), next_at=None, leased_until=None, error=None)
    )


def mark_failed(session: Session, message_id: str, error: str, *, again_in_s: float | None) -> None:
    """Stores why a message did not arrive, and in how many seconds it is due again; None: never.

    Does nothing for one that was delivered or given up meanwhile.
    """
    error = brief(error)
    _note_at_target(session, message_id, error=error, failed_at=now_us())
    next_at = None if again_in_s is None else now_us() + int(again_in_s * 1_000_000)
    session.execute(
        update(Message)
        .where(Message.id == message_id, Message.next_at.is_not(None))
        .values(error=error, next_at=next_at, leased_until=None)
    )


def clean(session: Session) -> bool:
    """Gives up messages that wait for too long, and deletes some of the old ones. Returns whether there are more."""
    late = and_(Message.next_at.is_not(None), Message.created_at < now_us() - in_us(TRIED))
    ids = select(Message.id).where(late).limit(_DELETED_PER_CALL).with_for_update(skip_locked=True)
    why = func.coalesce(Message.error, "it was not sent in time")
    session.execute(
        update(Message).where(Message.id.in_(ids), late).values(next_at=None, leased_until=None, error=why),
        execution_options={"synchronize_session": False},
    )
    old = and_(Message.next_at.is_(None), Message.created_at < now_us() - in_us(KEPT))
    # Rows that another program is deleting are skipped: two that wait for each other's rows would deadlock.
    some = select(Message.id).where(old).limit(_DELETED_PER_CALL).with_for_update(skip_locked=True)
    gone = session.execute(
        delete(Message).where(Message.id.in_(some)).returning(Message.id),
        execution_options={"synchronize_session": False},
    ).all()
    return len(gone) == _DELETED_PER_CALL


def _due(count: int) -> Select[*tuple[Any, ...]]:
    """Returns the query for the messages to send: of each target the oldest, of each user one after the other."""
    order = (Message.next_at, Message.id)
    after = func.row_number().over(partition_by=Message.target_id, order_by=order).label("after")
    heard = and_(NotificationTarget.id == Message.target_id, targets.is_heard())
    ready = select(Message.id, Message.owner, Message.target_id, Message.next_at, after)
    ready = ready.join(NotificationTarget, heard).where(_is_due(), ~_has_one_on_its_way()).subquery()
    turn = func.row_number().over(partition_by=ready.c.owner, order_by=(ready.c.next_at, ready.c.id)).label("turn")
    first = select(ready.c.id, ready.c.owner, ready.c.target_id, ready.c.next_at, turn)
    first = first.where(ready.c.after == 1).subquery()
    sending = select(Message.owner, func.count().label("messages")).where(Message.leased_until > now_us())
    sending = sending.group_by(Message.owner).subquery()
    chosen = select(first.c.id, first.c.target_id).join(sending, sending.c.owner == first.c.owner, isouter=True)
    chosen = chosen.where(first.c.turn + func.coalesce(sending.c.messages, 0) <= MOST_AT_ONCE)
    return chosen.order_by(first.c.turn, first.c.next_at, first.c.id).limit(count)


def _is_due() -> ColumnElement[bool]:
    free = or_(Message.leased_until.is_(None), Message.leased_until <= now_us())
    return and_(Message.next_at.is_not(None), Message.next_at <= now_us(), free)


def _has_one_on_its_way() -> ColumnElement[bool]:
    other = aliased(Message)
    return exists().where(other.target_id == Message.target_id, other.leased_until > now_us())


def _open_message(
    session: Session, keys: SecretKeys, row: Message, target: NotificationTarget, *, age: int
) -> MessageFacts | None:
    try:
        destination = targets.read_destination(target, keys)
    except ConfigError as error:
        mark_failed(session, row.id, error.message, again_in_s=_UNOPENED_AGAIN_S)
        return None
    return MessageFacts(row.id, row.kind, row.body, row.attempts, age / 1_000_000, destination)


def _note_at_target(session: Session, message_id: str, **values: Any) -> None:
    """Stores with the target how its newest attempt went. Its row is first, as for all who change messages."""
    target_id = select(Message.target_id).where(Message.id == message_id).scalar_subquery()
    session.execute(
        update(NotificationTarget).where(NotificationTarget.id == target_id).values(**values),
        execution_options={"synchronize_session": False},
    )
