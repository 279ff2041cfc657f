"""Files that jobs left."""

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import now_us
from store.db.tables.base import Base
from torchyard.contract.artifacts import MOST_PATH_BYTES


class Artifact(Base):
    """A file of a job, as the newest attempt that wrote it left it. Its row is inserted when its blob is stored.

    The path of a file of the working folder begins with `torchyard.contract.artifacts.KEPT`.
    """

    __tablename__ = "artifacts"
    __table_args__ = (UniqueConstraint("job_id", "path"), Index("ix_artifacts_sha256", "sha256"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    path: Mapped[str] = mapped_column(String(MOST_PATH_BYTES))
    attempt: Mapped[int]
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    modified_ns: Mapped[int | None] = mapped_column(BigInteger)
    """When it was modified, in nanoseconds since the epoch by the clock of its host. NULL: not known."""
    asked: Mapped[bool] = mapped_column(server_default=false(), default=False)
    """Whether somebody asked for it, by `torchyard keep`."""
