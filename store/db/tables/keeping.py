"""Requests to keep files of working folders."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables.base import Base


class KeepRequest(Base):
    """The newest request to store files of a job's working folder, which the worker answers on whose host that is."""

    __tablename__ = "keep_requests"
    __table_args__ = (
        Index(
            "ix_keep_requests_open",
            "worker_id",
            sqlite_where=text("answered_at IS NULL"),
            postgresql_where=text("answered_at IS NULL"),
        ),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"))
    attempt: Mapped[int]
    """The newest of the job when it was asked."""
    paths: Mapped[list[Any]] = mapped_column(Document)
    requested_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    answered_at: Mapped[int | None] = mapped_column(BigInteger)
    """NULL: the worker has not come to its end."""
    refused: Mapped[str | None] = mapped_column(CleanText)
    """Why nothing was stored, or what was not."""
    files: Mapped[int] = mapped_column(default=0, server_default="0")
    """Files that were stored for it."""
    size: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes of these files."""
    copied: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes that were copied, with those of a file that is not whole yet."""
