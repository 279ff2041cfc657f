"""The weights that jobs start from."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


class InitialWeights(Base):
    """What `init_from` named when the job was submitted: a checkpoint or a model. It may have been removed since.

    Its files are kept for the job until this ends.
    """

    __tablename__ = "initial_weights"
    __table_args__ = (Index("ix_initial_weights_source_job", "source_job"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    source_job: Mapped[str | None] = mapped_column(String(40))
    source_checkpoint: Mapped[str | None] = mapped_column(String(40))
    model_owner: Mapped[str | None] = mapped_column(String(100))
    model_name: Mapped[str | None] = mapped_column(String(100))
    model_version: Mapped[int | None]
    trainer: Mapped[str] = mapped_column(String(40))
    """The trainer of the job that has saved them."""
    step: Mapped[int] = mapped_column(BigInteger)
    epoch: Mapped[int | None]
    files: Mapped[list[Any]]
    """`{path, size, sha256}` each; empty once the job has ended."""
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes of its files together."""
