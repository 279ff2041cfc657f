"""What runs show: pictures, histograms, tables, texts and confusion matrices."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables.base import Base
from torchyard.contract.text import METRIC_KEY_LENGTH


class Media(Base):
    """An item, as the newest attempt that wrote it left it. Its row is inserted when its blobs are stored."""

    __tablename__ = "media"
    __table_args__ = (UniqueConstraint("job_id", "key", "step", "number"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    key: Mapped[str] = mapped_column(String(METRIC_KEY_LENGTH))
    kind: Mapped[str] = mapped_column(String(16))
    step: Mapped[int] = mapped_column(BigInteger)
    number: Mapped[int]
    attempt: Mapped[int]
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes of its pictures, and of its texts and data as JSON."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    caption: Mapped[str | None] = mapped_column(CleanText)
    classes: Mapped[list[Any] | None] = mapped_column(Document)
    data: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """Last, so that a list of keys and steps does not read it."""


class MediaPicture(Base):
    """A picture of an item."""

    __tablename__ = "media_pictures"
    __table_args__ = (Index("ix_media_pictures_sha256", "sha256"), Index("ix_media_pictures_job_id", "job_id"))

    media_id: Mapped[str] = mapped_column(ForeignKey("media.id"), primary_key=True)
    part: Mapped[str] = mapped_column(String(16), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    media_type: Mapped[str] = mapped_column(String(20))
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    width: Mapped[int]
    height: Mapped[int]
