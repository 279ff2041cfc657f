"""Bundles that users have uploaded, and the jobs that name them."""

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import now_us
from store.db.tables import Base


class Bundle(Base):
    """A complete bundle of one user. Its tar is the blob of that name, which bundles of other users may share."""

    __tablename__ = "bundles"
    __table_args__ = (
        CheckConstraint("size > 0", name="size"),
        Index("ix_bundles_sha256", "sha256"),
        Index("ix_bundles_owner_created_at_sha256", "owner", "created_at", "sha256"),
        Index("ix_bundles_owner_name", "owner", "name", unique=True),
    )

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes of the tar."""
    files: Mapped[int]
    parts: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)
    """The parts of the tar, as in `torchyard.contract.bundles.parts`. None: it was uploaded before there were any."""
    name: Mapped[str | None] = mapped_column(String(100), default=None)
    """What its owner calls it, as `data:NAME`. It is kept as long as it has a name."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    last_used_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    """The time of its upload, or of the last submission that named it."""


class BundleUse(Base):
    """A job of the bundle's owner names the bundle. The row goes with the job, and may outlive the bundle."""

    __tablename__ = "bundle_uses"
    __table_args__ = (Index("ix_bundle_uses_sha256", "sha256"), {"sqlite_with_rowid": False})

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
