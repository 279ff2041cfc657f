"""Reaches of users into running attempts, and the host names by which browsers come to them."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, false
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import Document, now_us
from store.db.tables import Base


class Reach(Base):
    """One reach. The row goes with its end, and with that of its attempt."""

    __tablename__ = "reaches"
    __table_args__ = (
        Index("ix_reaches_attempt_id", "attempt_id"),
        Index("ix_reaches_job_id", "job_id"),
        Index("ix_reaches_user", "user"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"))
    attempt: Mapped[int]
    """The number of that attempt."""
    user: Mapped[str] = mapped_column(String(100))
    role: Mapped[str] = mapped_column(String(20))
    """What the user was when it was opened: with another role it ends."""
    token_id: Mapped[str | None] = mapped_column(String(40))
    """The token with which it ends. NULL: that of the bootstrap administrator."""
    session: Mapped[str | None] = mapped_column(String(64))
    """The digest of the browser's session with which it ends."""
    order: Mapped[dict[str, Any]] = mapped_column(Document)
    """What is to be started: a `torchyard.contract.reach.orders.Order`."""
    meeting: Mapped[int] = mapped_column(default=1)
    """How often the client has come, or will have."""
    secret: Mapped[str | None] = mapped_column(String(64))
    """What both ends of this meeting prove that they know, in hex. NULL: both have."""
    first: Mapped[str | None] = mapped_column(String(8))
    """The end that has come to this meeting first: `client` or `worker`."""
    place: Mapped[str | None] = mapped_column(String(200))
    """Where the first end waits for the other one."""
    has_started: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether the worker has come to a meeting: then its program is there, and is joined instead of started."""
    until: Mapped[int] = mapped_column(BigInteger)
    """When it ends by itself if nobody comes or is there."""
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    """When a user ended it. The row stays a minute longer, so that the worker reads this."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Origin(Base):
    """A host name that one browser session has for a terminal in a running attempt, or for one of its ports.

    The rows are short-lived, and have no foreign keys: nothing waits for them to go.
    """

    __tablename__ = "origins"
    __table_args__ = (Index("ix_origins_user", "user"),)

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    """The first label of the host name."""
    job_id: Mapped[str] = mapped_column(String(40))
    attempt_id: Mapped[int] = mapped_column(BigInteger)
    user: Mapped[str] = mapped_column(String(100))
    role: Mapped[str] = mapped_column(String(20))
    token_id: Mapped[str | None] = mapped_column(String(40))
    session: Mapped[str] = mapped_column(String(64))
    """The digest of the browser's session with which it ends."""
    port: Mapped[int | None]
    """NULL: a terminal."""
    reach_id: Mapped[str | None] = mapped_column(String(40))
    """Of a terminal: its reach."""
    ticket: Mapped[str | None] = mapped_column(String(64))
    """The digest of what opens it once. NULL: it was used."""
    ticket_until: Mapped[int] = mapped_column(BigInteger)
    cookie: Mapped[str | None] = mapped_column(String(64))
    """The digest of what the browser got for the ticket."""
    until: Mapped[int] = mapped_column(BigInteger)
