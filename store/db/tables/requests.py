"""Idempotency keys, tombstones of deleted jobs, and garbage blobs."""

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    String,
)
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import now_us
from store.db.tables.base import Base


class IdempotencyKey(Base):
    """An idempotency key of a user's request that created a job, with the id of that job. Kept for 24 hours."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        Index("ix_idempotency_keys_created_at", "created_at"),
        Index("ix_idempotency_keys_job_id", "job_id"),
    )

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the request's method, path and body."""
    status: Mapped[int]
    location: Mapped[str] = mapped_column(String(200))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class DeletedJob(Base):
    """The tombstone of a deleted job, by which workers remove its run directories."""

    __tablename__ = "deleted_jobs"
    __table_args__ = (Index("ix_deleted_jobs_deleted_at", "deleted_at", "job_id"),)

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    deleted_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Garbage(Base):
    """A blob of a deleted job or a removed checkpoint, to be removed if no checkpoint refers to it."""

    __tablename__ = "garbage"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
