"""For which other jobs jobs wait."""

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


class Dependency(Base):
    """A job that must have ended before another one starts. Its own row says how it ended, until it is deleted."""

    __tablename__ = "dependencies"
    __table_args__ = (Index("ix_dependencies_awaited", "awaited"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    """The job that waits."""
    number: Mapped[int] = mapped_column(primary_key=True)
    """Its place in the spec, from 0."""
    awaited: Mapped[str] = mapped_column(String(40))
    """The job for which it waits, which may have been deleted since."""
    on: Mapped[str] = mapped_column(String(16))
    """How that must end: `torchyard.contract.after.Ending`."""
    ended: Mapped[str | None] = mapped_column(String(16))
    """The state in which it had ended, if it was deleted."""
