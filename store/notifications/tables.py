"""Notifications: targets, what happened of which nobody was notified yet, and messages."""

from typing import Any

from sqlalchemy import BigInteger, Index, LargeBinary, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables import Base, BigKey

_WAITS = text("next_at IS NOT NULL")


class NotificationTarget(Base):
    """An address of a user's. Messages to it are sent in the order of their times, one after the other."""

    __tablename__ = "notification_targets"
    __table_args__ = (
        UniqueConstraint("owner", "name", name="uq_notification_targets_owner"),
        Index("ix_notification_targets_scope", "scope"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(100))
    kind: Mapped[str] = mapped_column(String(16))
    """A `torchyard.contract.notifications.kinds.TargetKind`."""
    shown: Mapped[str] = mapped_column(CleanText)
    """The address as it is shown: of a URL, the part before its path, which may be a secret itself."""
    sealed: Mapped[bytes] = mapped_column(LargeBinary)
    """JSON of the address and the secret, encrypted."""
    key_id: Mapped[str] = mapped_column(String(16))
    """Which key encrypted it."""
    kinds: Mapped[str] = mapped_column(Text)
    """What it is notified of, by `store.notifications.targets.kinds_text`."""
    jobs: Mapped[str] = mapped_column(String(8))
    scope: Mapped[str] = mapped_column(String(8))
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    delivered_at: Mapped[int | None] = mapped_column(BigInteger)
    """When a message was delivered last."""
    error: Mapped[str | None] = mapped_column(CleanText)
    """Why the last attempt failed; None after a delivery."""
    failed_at: Mapped[int | None] = mapped_column(BigInteger)
    """When that was."""


class Signal(Base):
    """Something happened that a target may be notified of. The row is deleted when its messages are made."""

    __tablename__ = "signals"
    __table_args__ = (Index("ix_signals_owner", "owner", "id"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    """A `torchyard.contract.notifications.kinds.EventKind`."""
    time: Mapped[int] = mapped_column(BigInteger, default=now_us())
    owner: Mapped[str] = mapped_column(String(100))
    """Of the job or sweep; empty for a worker."""
    visibility: Mapped[str] = mapped_column(String(8))
    """Of the job or sweep at that time; `team` for a worker."""
    subject: Mapped[str] = mapped_column(String(40))
    """The id of the job, the sweep or the worker."""
    notify: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """What the job's spec says of its targets, as `torchyard.contract.notifications.kinds.Notify`."""
    data: Mapped[dict[str, Any]]


class Message(Base):
    """The message to one target, sent once. The id stays the same over all attempts."""

    __tablename__ = "messages"
    __table_args__ = (
        Index("ix_messages_next_at", "next_at", sqlite_where=_WAITS, postgresql_where=_WAITS),
        Index("ix_messages_owner", "owner", "created_at"),
        Index("ix_messages_target_id", "target_id", "id"),
        Index("ix_messages_created_at", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    target_id: Mapped[str] = mapped_column(String(40))
    """The target may be gone."""
    owner: Mapped[str] = mapped_column(String(100))
    """Of the target."""
    kind: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(String(40))
    """As that of its signal; empty without one."""
    body: Mapped[dict[str, Any]]
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[int | None] = mapped_column(BigInteger)
    """When it is due; None once it is delivered or given up."""
    leased_until: Mapped[int | None] = mapped_column(BigInteger)
    """Until when nobody else sends it."""
    delivered_at: Mapped[int | None] = mapped_column(BigInteger)
    error: Mapped[str | None] = mapped_column(CleanText)
    """Why the last attempt failed, or why there is none any more."""
