"""Stars: the jobs that a user wants to find again."""

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


class Star(Base):
    """A job that a user has starred. Nobody else is told of it."""

    __tablename__ = "stars"
    __table_args__ = (Index("ix_stars_job_id", "job_id"),)

    who: Mapped[str] = mapped_column(String(100), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
