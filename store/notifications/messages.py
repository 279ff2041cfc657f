"""Messages to targets, in JSON. A message keeps its id over all attempts to send it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import and_, func, insert, select, update
from sqlalchemy.orm import Session

from store import pages
from store.db.columns import to_time
from store.db.database import in_us, now_us
from store.ids import new_id
from store.pages import FactPage
from store.tables import Message, NotificationTarget, Signal
from torchyard.contract.notifications.kinds import DIGEST, MESSAGES_AN_HOUR, TEST, EventKind
from torchyard.contract.notifications.views import MessageView

MOST_ITEMS = 20
"""That a digest lists; it counts the others."""

_WORDS = {
    EventKind.JOB_STARTED: "runs",
    EventKind.JOB_SUCCEEDED: "succeeded",
    EventKind.JOB_FAILED: "failed",
    EventKind.JOB_CANCELLED: "was cancelled",
    EventKind.JOB_PAUSED: "is paused",
    EventKind.JOB_REQUEUED: "waits to run again",
    EventKind.JOB_BEST: "has a new best checkpoint",
    EventKind.JOB_WARNING: "has a warning",
    EventKind.SWEEP_FINISHED: "has ended",
    EventKind.WORKER_LOST: "is lost",
}
_HOUR_US = in_us(timedelta(hours=1))


def add(
    session: Session, target: NotificationTarget, *, kind: str, subject: str, body: Mapping[str, Any], in_s: float = 0
) -> str:
    """Stores a message for a target that is locked, due in so many seconds, and returns its id."""
    message_id = new_id("msg")
    values = {"target_id": target.id, "owner": target.owner, "kind": kind, "subject": subject, "body": dict(body)}
    session.execute(insert(Message).values(id=message_id, next_at=now_us() + int(in_s * 1_000_000), **values))
    return message_id


def add_test(session: Session, target: NotificationTarget) -> MessageView:
    """Stores the message by which a user tries a target that is locked, and returns it."""
    body = _body_of_test(time=session.execute(select(now_us())).scalar_one(), name=target.name)
    message_id = add(session, target, kind=TEST, subject="", body=body)
    return _view(session.scalars(select(Message).where(Message.id == message_id)).one(), target.name)


def count_room(session: Session, owner: str) -> int:
    """Returns how many messages the user may get now. Call it while their targets are locked."""
    counted = and_(Message.owner == owner, Message.created_at > now_us() - _HOUR_US, Message.kind != DIGEST)
    count = session.execute(select(func.count()).select_from(Message).where(counted)).scalar_one()
    return max(0, MESSAGES_AN_HOUR - count)


def open_digest(session: Session, target: NotificationTarget) -> tuple[str, dict[str, Any]] | None:
    """Returns the id and the body of the digest of a locked target that nobody has begun to send."""
    unsent = and_(Message.kind == DIGEST, Message.attempts == 0, Message.next_at.is_not(None))
    digests = select(Message.id, Message.body).where(Message.target_id == target.id, unsent)
    row = session.execute(digests.order_by(Message.id.desc()).limit(1)).first()
    return None if row is None else (row.id, row.body)


def set_body(session: Session, message_id: str, body: Mapping[str, Any]) -> None:
    """Stores another body of a digest that `open_digest` has returned."""
    session.execute(update(Message).where(Message.id == message_id).values(body=dict(body)))


def give_up_target(session: Session, target_id: str, *, why: str) -> None:
    """Gives up what waits for a target. It still counts in the hour, so that a new target gets no more."""
    waits = and_(Message.target_id == target_id, Message.next_at.is_not(None))
    session.execute(update(Message).where(waits).values(next_at=None, leased_until=None, error=why))


def give_up_all(session: Session, *, why: str) -> None:
    """Gives up all that waits."""
    session.execute(
        update(Message).where(Message.next_at.is_not(None)).values(next_at=None, leased_until=None, error=why)
    )


def list_messages(
    session: Session, owner: str, *, target_id: str | None = None, limit: int, before: str | None = None
) -> FactPage[MessageView]:
    """Returns messages of the user's targets, newest first; with `before` (an id), only older ones."""
    query = select(Message, NotificationTarget.name).join(
        NotificationTarget, NotificationTarget.id == Message.target_id, isouter=True
    )
    query = query.where(Message.owner == owner).order_by(Message.id.desc()).limit(limit + 1)
    if target_id is not None:
        query = query.where(Message.target_id == target_id)
    if before is not None:
        query = query.where(Message.id < before)
    return pages.first([_view(*row) for row in session.execute(query)], limit)


def body_of_signal(signal: Signal) -> dict[str, Any]:
    """Returns the body of the message that tells of a signal.

    `title` is written by the service, from names. `text` may be what a job wrote.
    """
    kind = EventKind(signal.kind)
    subject, name = next((key, signal.data[key]["name"]) for key in ("job", "sweep", "worker") if key in signal.data)
    text = signal.data.get("text") or signal.data.get("reason", {}).get("message", "")
    title = f"{subject} {name} {_WORDS[kind]}"
    return _body(kind, signal.time, {"title": title, "text": text, **signal.data})


def empty_digest(*, time: int) -> dict[str, Any]:
    """Returns a digest of nothing yet, which stands for messages from that time on."""
    return _body(DIGEST, time, {"title": "", "text": "", "count": 0, "kinds": {}, "items": []})


def add_to_digest(digest: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the digest with a message that is not sent by itself."""
    data, new = digest["data"], message["data"]
    count = data["count"] + 1
    kinds = {**data["kinds"], message["type"]: data["kinds"].get(message["type"], 0) + 1}
    items = data["items"]
    if len(items) < MOST_ITEMS:
        items = [*items, {"type": message["type"], "timestamp": message["timestamp"], "title": new["title"]}]
    listed = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    words = {"title": f"{count} more message{'' if count == 1 else 's'}", "text": listed}
    return {**digest, "data": {**words, "count": count, "kinds": kinds, "items": items}}


def _view(row: Message, target: str | None) -> MessageView:
    """`target`: the name of the message's target, None if that was removed."""
    done = "delivered" if row.delivered_at is not None else "given_up"
    return MessageView(
        id=row.id,
        target_id=row.target_id,
        target=target,
        kind=row.kind,
        subject=row.subject or None,
        state="waiting" if row.next_at is not None else done,
        title=row.body["data"]["title"],
        text=row.body["data"]["text"],
        created_at=to_time(row.created_at),
        attempts=row.attempts,
        next_at=None if row.next_at is None else to_time(row.next_at),
        delivered_at=None if row.delivered_at is None else to_time(row.delivered_at),
        error=row.error,
    )


def _body_of_test(*, time: int, name: str) -> dict[str, Any]:
    """Returns the body of the message by which a user tries a target."""
    return _body(TEST, time, {"title": f"a test of {name}", "text": "Torchyard can send you messages."})


def _body(kind: str, time: int, data: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(time / 1_000_000, UTC)
    return {
        "type": str(kind),
        "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": data,
    }
