"""Schedules: jobs that the service submits again and again."""

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables import Base


class Schedule(Base):
    """A job spec, and the times at which it is submitted for its owner."""

    __tablename__ = "schedules"
    __table_args__ = (
        CheckConstraint("(next_at IS NOT NULL) = (state = 'active')", name="due_iff_active"),
        Index("ix_schedules_next_at", "next_at"),
        Index("ix_schedules_owner_id", "owner", "id"),
        Index("ix_schedules_key", "owner", "idempotency_key", unique=True),
        Index(
            "ix_schedules_replaced",
            "replaced",
            sqlite_where=text("replaced IS NOT NULL"),
            postgresql_where=text("replaced IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(100))
    """The name of its jobs."""
    visibility: Mapped[str] = mapped_column(String(8))
    """A `torchyard.contract.team.roles.Visibility`: that of its jobs."""
    spec: Mapped[dict[str, Any]]
    """The job's, without `schedule`."""
    schedule: Mapped[dict[str, Any]]
    """A `torchyard.contract.spec.schedule.Schedule`."""
    overlap: Mapped[str] = mapped_column(String(8))
    """That of the schedule."""
    bundles: Mapped[str] = mapped_column(Text)
    """The sha256 of each bundle that the spec names, separated by spaces."""
    state: Mapped[str] = mapped_column(String(8))
    """A `torchyard.contract.schedules.ScheduleState`."""
    reason_code: Mapped[str | None] = mapped_column(String(40))
    reason_message: Mapped[str | None] = mapped_column(CleanText)
    """Why it is paused or has ended."""
    next_at: Mapped[int | None] = mapped_column(BigInteger)
    """When the next run is due."""
    last_due_at: Mapped[int | None] = mapped_column(BigInteger)
    last_job_id: Mapped[str | None] = mapped_column(String(40))
    """The newest run, which may be deleted, and when it was due."""
    replaced: Mapped[str | None] = mapped_column(String(40))
    """The run before, as long as it is to be cancelled in favour of the newest."""
    skipped: Mapped[int] = mapped_column(BigInteger, default=0)
    """Times at which no run was submitted, as the one before had not ended."""
    refused: Mapped[int] = mapped_column(default=0)
    """Runs in a row that were refused."""
    last_error: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """`{code, message, at}` of the newest refusal, if no run was accepted since."""
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    fingerprint: Mapped[str | None] = mapped_column(String(64))
    """Of the request with that key: as of `IdempotencyKey`."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
