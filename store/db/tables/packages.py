"""The packages that a job had."""

from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


class JobPackages(Base):
    """What the newest attempt that told it had installed. A row of its own: who reads a job does not read it."""

    __tablename__ = "job_packages"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int]
    document: Mapped[dict[str, Any]]
    """Versions by names."""
