"""The working folders of jobs on hosts."""

from sqlalchemy import BigInteger, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import now_us
from store.db.tables.base import Base


class WorkFolder(Base):
    """The folder of a job on one host, as its worker measured it last. A row may outlive its job by a pass."""

    __tablename__ = "work_folders"
    __table_args__ = (Index("ix_work_folders_worker_id", "worker_id"),)

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes on the disk."""
    measured_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
