"""Messages: what each target is told. A message is sent at least once, always with the same id."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from store.db import columns
from store.db.database import in_us, now_us
from store.ids import new_id
from store.notifications import bodies as message_bodies
from store.notifications import targets
from store.notifications.facts import ListedMessage, MessageFacts
from store.notifications.signals import brief
from store.secret_keys import SecretKeys
from store.tables import Message, NotificationTarget
from torchyard.contract.errors import ConfigError
from torchyard.contract.notifications import DIGEST, MESSAGES_AN_HOUR, TEST

MOST_AT_ONCE = 4
"""Messages of one user that are sent at the same time. Of one target there is one."""
KEPT = timedelta(days=7)
"""How long a message is listed."""
TRIED = timedelta(days=2)
"""A message that waits for longer is given up, as its user was disabled or no controller ran."""

_HOUR_US = in_us(timedelta(hours=1))
_UNOPENED_AGAIN_S = 900.0
_DELETED_PER_CALL = 1000
_LISTED = columns.of(ListedMessage, Message)


def add(
    session: Session, target: NotificationTarget, *, kind: str, subject: str, body: Mapping[str, Any], in_s: float = 0
) -> str:
    """Stores a message for a target that is locked, due in so many seconds, and returns its id."""
    message_id = new_id("msg")
    made = {"target_id": target.id, "owner": target.owner, "kind": kind, "subject": subject, "body": dict(body)}
    session.execute(insert(Message).values(id=message_id, next_at=now_us() + int(in_s * 1_000_000), **made))
    return message_id


def add_test(session: Session, target: NotificationTarget) -> ListedMessage:
    """Stores the message by which a user tries a target that is locked, and returns it."""
    body = message_bodies.of_test(time=session.execute(select(now_us())).scalar_one(), name=target.name)
    message_id = add(session, target, kind=TEST, subject="", body=body)
    row = session.execute(select(*_LISTED).where(Message.id == message_id)).one()
    return ListedMessage(*row, target=target.name)


def room_of(session: Session, owner: str) -> int:
    """Returns how many messages the user may get now. Call it while their targets are locked."""
    counted = and_(Message.owner == owner, Message.created_at > now_us() - _HOUR_US, Message.kind != DIGEST)
    made = session.execute(select(func.count()).select_from(Message).where(counted)).scalar_one()
    return max(0, MESSAGES_AN_HOUR - made)


def open_digest(session: Session, target: NotificationTarget) -> tuple[str, dict[str, Any]] | None:
    """Returns the id and the body of the digest of a locked target that nobody has begun to send."""
    unsent = and_(Message.kind == DIGEST, Message.attempts == 0, Message.next_at.is_not(None))
    found = select(Message.id, Message.body).where(Message.target_id == target.id, unsent)
    row = session.execute(found.order_by(Message.id.desc()).limit(1)).first()
    return None if row is None else (row.id, row.body)


def set_body(session: Session, message_id: str, body: Mapping[str, Any]) -> None:
    """Stores another body of a digest that `open_digest` has returned."""
    session.execute(update(Message).where(Message.id == message_id).values(body=dict(body)))


def has_due(session: Session) -> bool:
    """Returns whether a message is due that nobody sends, and whose target is told something now."""
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
    place = {message_id: number for number, message_id in enumerate(ids)}
    rows = sorted(rows, key=lambda row: place[row.Message.id])
    opened = [_opened(session, keys, row.Message, free[row.Message.target_id], age=row.age) for row in rows]
    return [each for each in opened if each is not None]


def delivered(session: Session, message_id: str) -> None:
    """Stores that the target has a message. Repeating it changes nothing."""
    _note(session, message_id, delivered_at=now_us(), error=None)
    session.execute(
        update(Message)
        .where(Message.id == message_id, Message.delivered_at.is_(None))
        .values(delivered_at=now_us(), next_at=None, leased_until=None, error=None)
    )


def failed(session: Session, message_id: str, error: str, *, again_in_s: float | None) -> None:
    """Stores why a message did not arrive, and in how many seconds it is due again; None: never.

    Does nothing for one that was delivered or given up meanwhile.
    """
    error = brief(error)
    _note(session, message_id, error=error, failed_at=now_us())
    next_at = None if again_in_s is None else now_us() + int(again_in_s * 1_000_000)
    session.execute(
        update(Message)
        .where(Message.id == message_id, Message.next_at.is_not(None))
        .values(error=error, next_at=next_at, leased_until=None)
    )


def give_up_of(session: Session, target_id: str, *, why: str) -> None:
    """Gives up what waits for a target. It still counts in the hour, so that a new target is told no more."""
    waits = and_(Message.target_id == target_id, Message.next_at.is_not(None))
    session.execute(update(Message).where(waits).values(next_at=None, leased_until=None, error=why))


def give_up_all(session: Session, *, why: str) -> None:
    """Gives up all that waits."""
    session.execute(
        update(Message).where(Message.next_at.is_not(None)).values(next_at=None, leased_until=None, error=why)
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


def newest_first(
    session: Session, owner: str, *, target_id: str | None = None, limit: int, before: str | None = None
) -> Sequence[ListedMessage]:
    """Returns messages of the user's targets, newest first; with `before` (an id), only older ones."""
    query = select(*_LISTED, NotificationTarget.name).join(
        NotificationTarget, NotificationTarget.id == Message.target_id, isouter=True
    )
    query = query.where(Message.owner == owner).order_by(Message.id.desc()).limit(limit)
    if target_id is not None:
        query = query.where(Message.target_id == target_id)
    if before is not None:
        query = query.where(Message.id < before)
    return [ListedMessage(*row) for row in session.execute(query)]


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


def _opened(
    session: Session, keys: SecretKeys, row: Message, target: NotificationTarget, *, age: int
) -> MessageFacts | None:
    try:
        destination = targets.destination(target, keys)
    except ConfigError as error:
        failed(session, row.id, error.message, again_in_s=_UNOPENED_AGAIN_S)
        return None
    return MessageFacts(row.id, row.kind, row.body, row.attempts, age / 1_000_000, destination)


def _note(session: Session, message_id: str, **values: Any) -> None:
    """Stores with the target how its newest attempt went. Its row is first, as for all who change messages."""
    target_id = select(Message.target_id).where(Message.id == message_id).scalar_subquery()
    session.execute(
        update(NotificationTarget).where(NotificationTarget.id == target_id).values(**values),
        execution_options={"synchronize_session": False},
    )
