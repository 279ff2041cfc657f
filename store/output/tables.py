"""What attempts produce: events, metric points, log lines, checkpoints, artifacts and media."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, Float64, now_us
from store.db.tables import Base, BigKey
from torchyard.contract.files.paths import MOST_PATH_BYTES
from torchyard.contract.wire.text import METRIC_KEY_LENGTH


class JobEvent(Base):
    """An event of a job. `seq` is its position in the job's timeline."""

    __tablename__ = "job_events"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    time: Mapped[int] = mapped_column(BigInteger, default=now_us())
    type: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int | None]
    data: Mapped[dict[str, Any]]


class Series(Base):
    """A metric of a job, with its newest value and its number of stored points."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("job_id", "key"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    key: Mapped[str] = mapped_column(String(200))
    latest: Mapped[float] = mapped_column(Float64, nullable=True)
    low: Mapped[float | None] = mapped_column(Float(53))
    """The least finite value that was logged, also at steps that a later attempt repeats; NULL without any."""
    high: Mapped[float | None] = mapped_column(Float(53))
    """The greatest one."""
    count: Mapped[int] = mapped_column(BigInteger, default=0)
    source: Mapped[str | None] = mapped_column(String(16))


class PointChunk(Base):
    """Points of one series and attempt, packed by `store.output.metrics.POINT`. `first` is the first point's position.

    The points of one batch have neighbouring positions. Those of several, which `store.output.joining` has joined, do
    not: `places` says which they have.
    """

    __tablename__ = "point_chunks"
    __table_args__ = (
        UniqueConstraint("job_id", "first"),
        Index(
            "ix_point_chunks_joined",
            "job_id",
            "last",
            sqlite_where=text("last IS NOT NULL"),
            postgresql_where=text("last IS NOT NULL"),
        ),
        {"sqlite_with_rowid": False},
    )

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True, autoincrement=False)
    first: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    attempt: Mapped[int]
    count: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)
    last: Mapped[int | None] = mapped_column(BigInteger)
    """The position of the last point of a joined chunk; NULL for the chunk of one batch."""
    places: Mapped[bytes | None] = mapped_column(LargeBinary)
    """The first point's position and the number of points of each batch, as `store.output.metrics.BATCH`."""


class Checkpoint(Base):
    """A published checkpoint. Its row is inserted when all its blobs are stored.

    The row outlives the blobs, so that a removed checkpoint is not listed again.
    """

    __tablename__ = "checkpoints"
    __table_args__ = (
        UniqueConstraint("job_id", "attempt", "name"),
        Index(
            "ix_checkpoints_kept",
            "job_id",
            "attempt",
            "saved_at",
            sqlite_where=text("removed_at IS NULL"),
            postgresql_where=text("removed_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    attempt: Mapped[int]
    name: Mapped[str] = mapped_column(String(100))
    epoch: Mapped[int | None]
    end_of_epoch: Mapped[bool]
    step: Mapped[int] = mapped_column(BigInteger)
    saved_at: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """When it was saved, in nanoseconds: `store.output.checkpoints` says what it decides."""
    damaged: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether its worker found that it is not whole."""
    metrics: Mapped[dict[str, Any]]
    """Non-finite values are strings, because JSON has no numbers for them."""
    monitored: Mapped[float | None] = mapped_column(Float64, nullable=True)
    """The value that decides about `best`; NULL if it is absent or not finite."""
    files: Mapped[list[Any]]
    """`{path, size, sha256}` each, as the relay read them; `sha256` is the blob's key. Empty after removal."""
    files_bytes: Mapped[int | None]
    """Bytes of `files` as JSON; NULL for a row of an older version."""
    sent: Mapped[dict[str, Any] | None]
    """What `store.output.checkpoints_facts.sent_of` says of the files; NULL for a row of an older version."""
    size: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes of its files together; 0 after removal."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    removed_at: Mapped[int | None] = mapped_column(BigInteger)
    """Time of its removal by the retention policy."""
    source: Mapped[str | None] = mapped_column(String(16))
    """NULL if the script published it."""
    remeasured: Mapped[dict[str, Any] | None]
    """Metrics as they were measured again in one process, after training; NULL if they were not."""


class LogChunk(Base):
    """Lines of one rank's stream, in the order in which they were relayed.

    `first` is the number of its first line in the job, from 1; `position` is that line's position in the timeline.
    """

    __tablename__ = "log_chunks"
    __table_args__ = (
        Index("uq_log_chunks_job_id_position", "job_id", "position", unique=True),
        {"sqlite_with_rowid": False},
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    first: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int]
    attempt: Mapped[int]
    rank: Mapped[int | None]
    stream: Mapped[str] = mapped_column(String(6))
    time: Mapped[int] = mapped_column(BigInteger, default=now_us())
    text: Mapped[str] = mapped_column(CleanText)


class Artifact(Base):
    """A file of a job, as the newest attempt that wrote it left it. Its row is inserted when its blob is stored.

    The path of a file of the working folder begins with `torchyard.contract.files.paths.KEPT`.
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
