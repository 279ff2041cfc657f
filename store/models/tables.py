"""Models: checkpoints that users keep under a name."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import Document, now_us
from store.db.tables import Base


class Model(Base):
    """A name of its owner's. There is such a model as long as it has a version.

    The row stays when the last version goes, so that no number is given twice.
    """

    __tablename__ = "models"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    visibility: Mapped[str] = mapped_column(String(8))
    """A `torchyard.contract.team.roles.Visibility`."""
    last_version: Mapped[int] = mapped_column(default=0)
    """The highest number that was given to a version."""


class ModelVersion(Base):
    """The files of a checkpoint, which this row keeps when the checkpoint or its job is gone. It never changes."""

    __tablename__ = "model_versions"
    __table_args__ = (
        ForeignKeyConstraint(["owner", "name"], ["models.owner", "models.name"]),
        Index("ix_model_versions_checkpoint_id", "checkpoint_id"),
    )

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    trainer: Mapped[str] = mapped_column(String(40))
    job_id: Mapped[str] = mapped_column(String(40))
    """The job that saved the checkpoint, which may be deleted."""
    checkpoint_id: Mapped[str] = mapped_column(String(40))
    step: Mapped[int] = mapped_column(BigInteger)
    epoch: Mapped[int | None]
    metrics: Mapped[dict[str, Any]]
    """As those of a checkpoint."""
    card: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """The card of the job at that time."""
    files: Mapped[list[Any]]
    """`{path, size, sha256}` each; `sha256` is the blob's key."""
    files_bytes: Mapped[int | None]
    sent: Mapped[dict[str, Any] | None]
    """This and `files_bytes` are those of the checkpoint."""
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes of its files together."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
