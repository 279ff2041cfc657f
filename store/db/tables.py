"""The tables. Every time is microseconds since the epoch, by the database's clock."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from store.db.database import CleanText, Document, Float64, now_us
from store.db.stored_spec import StoredSpec
from torchyard.contract.job import JobState

BigKey = BigInteger().with_variant(Integer, "sqlite")

_TERMINAL = ", ".join(f"'{state}'" for state in JobState if state.terminal)


NEVER_TRIMMED = 2**62
"""More bytes than anything has."""


def _finished_by(column: str) -> Index:
    return Index(
        f"ix_jobs_{column}_finished_at",
        column,
        "finished_at",
        sqlite_where=text("finished_at IS NOT NULL"),
        postgresql_where=text("finished_at IS NOT NULL"),
    )


def _of_queued(name: str, *columns: str, where: str) -> Index:
    # The state stands in front, though it is one: else SQLite takes an index of which the state says more.
    of_queued = text(f"state = '{JobState.QUEUED}' AND {where}")
    return Index(name, "state", *columns, sqlite_where=of_queued, postgresql_where=of_queued)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: Document, list[Any]: Document}


class Worker(Base):
    """A daemon, one per host."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    devices: Mapped[list[Any]]
    """What it last saw of its devices: `torchyard.contract.views.DeviceView` each, without who holds them."""
    started_at: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[int] = mapped_column(BigInteger)
    drain_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    starts: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """How it starts jobs: a `torchyard.contract.views.StartsView`."""


class Job(Base):
    """What a user submitted. Only `store.rows.jobs.transition` writes `state`."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint(f"(finished_at IS NOT NULL) = (state IN ({_TERMINAL}))", name="finished_iff_terminal"),
        Index("ix_jobs_state_priority_id", "state", "priority", "id"),
        Index("ix_jobs_owner_id", "owner", "id"),
        _finished_by("log_cut_to"),
        _finished_by("events_cut_to"),
        _of_queued("ix_jobs_waiting", "shape", "priority", "id", where="not_before IS NULL"),
        _of_queued("ix_jobs_held_back", "not_before", where="not_before IS NOT NULL"),
        _of_queued("ix_jobs_favoured", "reason_code", where="reason_code = 'preempting'"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(100))
    trainer: Mapped[str] = mapped_column(String(40))
    spec: Mapped[dict[str, Any]]
    priority: Mapped[int]
    shape: Mapped[str | None] = mapped_column(String(32))
    """`store.rows.shapes.shape_of` the job; None where a program from before there were shapes has submitted it."""
    labels: Mapped[dict[str, Any]]
    retry_of: Mapped[str | None] = mapped_column(String(40))
    state: Mapped[str] = mapped_column(String(16))
    version: Mapped[int] = mapped_column(default=1)
    """Rises with the state, intents, checkpoints and the card, not with progress."""
    reason_code: Mapped[str] = mapped_column(String(40))
    reason_message: Mapped[str] = mapped_column(CleanText)
    reason_since: Mapped[int] = mapped_column(BigInteger, default=now_us())
    cancel_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    pause_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    """Set as long as the job is to be paused, or is."""
    preempt_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    preempted_for: Mapped[str | None] = mapped_column(String(40))
    """The job whose start needs the devices of this one's attempt."""
    not_before: Mapped[int | None] = mapped_column(BigInteger)
    attempt: Mapped[int] = mapped_column(default=0)
    """The number of the latest attempt; 0 before the first."""
    restarts: Mapped[int] = mapped_column(default=0)
    """Retries that counted against `max_restarts`."""
    attempts_without_checkpoint: Mapped[int] = mapped_column("barren", default=0)
    """Attempts in a row that published no checkpoint."""
    ran_us: Mapped[int] = mapped_column(BigInteger, default=0)
    """How long the ended attempts took together; the time limit is over all of them."""
    progress: Mapped[dict[str, Any] | None] = mapped_column(Document)
    card: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """What the run says of itself: its size, its data, its speed. At most 64 KiB."""
    devices: Mapped[list[Any]] = mapped_column(Document, default=list)
    error: Mapped[dict[str, Any] | None] = mapped_column(Document)
    position: Mapped[int] = mapped_column(BigKey, default=0)
    """The place of the newest thing stored of the job: each event, metric point and log line has one, in the order of
    their commits."""
    log_lines: Mapped[int] = mapped_column(BigInteger, default=0)
    log_cut_to: Mapped[int] = mapped_column(BigInteger, default=NEVER_TRIMMED, server_default=str(NEVER_TRIMMED))
    """The bytes to which housekeeping has cut the log of the finished job."""
    events_cut_to: Mapped[int] = mapped_column(BigInteger, default=NEVER_TRIMMED, server_default=str(NEVER_TRIMMED))
    """As `log_cut_to`, of what its attempts told as events."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    started_at: Mapped[int | None] = mapped_column(BigInteger)
    finished_at: Mapped[int | None] = mapped_column(BigInteger)

    @property
    def stored_spec(self) -> StoredSpec:
        """What the service reads of the spec."""
        return StoredSpec.model_validate(self.spec)


class WaitingReason(Base):
    """Why the jobs of a shape wait: all of those that wait for nothing of their own."""

    __tablename__ = "waiting_reasons"

    shape: Mapped[str] = mapped_column(String(32), primary_key=True)
    code: Mapped[str] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(CleanText)
    since: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Attempt(Base):
    """One run of a job. The open row is the fence: who writes for the attempt takes it first."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        Index(
            "ix_attempts_open",
            "worker_id",
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
        Index(
            "uq_attempts_open_job",
            "job_id",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    number: Mapped[int]
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"))
    lease_until: Mapped[int] = mapped_column(BigInteger)
    start_step: Mapped[int] = mapped_column(BigInteger, default=0)
    """The step it resumed from; earlier attempts' points beyond it are hidden."""
    launcher: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """The engine's handle, as JSON: a superset of `torchyard.contract.rundir.ProcessIdentity`."""
    relay_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    """Rises with every relayed batch, by compare-and-set."""
    offsets: Mapped[dict[str, Any]] = mapped_column(Document, default=dict)
    """Bytes relayed of each file of the run directory."""
    relay_lag_us: Mapped[int] = mapped_column(BigInteger, default=0)
    """How old the oldest line of the newest batch was when it was read."""
    checkpoints: Mapped[int] = mapped_column(default=0)
    started_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    end_reason: Mapped[str | None] = mapped_column(String(20))
    detail: Mapped[str | None] = mapped_column(CleanText)


class Allocation(Base):
    """A device held by an attempt, or once held. An open one keeps every other attempt away."""

    __tablename__ = "allocations"
    __table_args__ = (
        Index(
            "uq_allocations_open_device",
            "worker_id",
            "device",
            unique=True,
            sqlite_where=text("released_at IS NULL"),
            postgresql_where=text("released_at IS NULL"),
        ),
        Index("ix_allocations_attempt_id", "attempt_id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"))
    node_rank: Mapped[int] = mapped_column(default=0)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"))
    device: Mapped[str] = mapped_column(String(100))
    released_at: Mapped[int | None] = mapped_column(BigInteger)


class JobEvent(Base):
    """Something that happened to a job. `seq` is its position among all that is stored of the job."""

    __tablename__ = "job_events"
    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    time: Mapped[int] = mapped_column(BigInteger, default=now_us())
    type: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int | None]
    data: Mapped[dict[str, Any]]


class Series(Base):
    """A metric of a job, with its newest value and how many points of it are stored."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("job_id", "key"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    key: Mapped[str] = mapped_column(String(200))
    latest: Mapped[float] = mapped_column(Float64, nullable=True)
    count: Mapped[int] = mapped_column(BigInteger, default=0)


class PointChunk(Base):
    """Points of one series in one batch, packed as `store.rows.metrics.POINT`. `first` is the first one's position."""

    __tablename__ = "point_chunks"
    __table_args__ = (UniqueConstraint("job_id", "first"), {"sqlite_with_rowid": False})

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True, autoincrement=False)
    first: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    attempt: Mapped[int]
    count: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)


class Checkpoint(Base):
    """A published checkpoint. Its bytes are blobs; the row is written when they are all there, and outlives them: what
    was removed is not listed again."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        UniqueConstraint("job_id", "attempt", "name"),
        Index(
            "ix_checkpoints_kept",
            "job_id",
            "attempt",
            "step",
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
    metrics: Mapped[dict[str, Any]]
    """Non-finite values as strings, as JSON has no numbers for them."""
    monitored: Mapped[float | None] = mapped_column(Float64, nullable=True)
    """The value that decides about `best`; NULL where it is absent or not a number."""
    files: Mapped[list[Any]]
    """`{path, size, sha256}` each, as the relay read them; `sha256` is the blob's key. Empty once it is removed."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    removed_at: Mapped[int | None] = mapped_column(BigInteger)
    """When newer and better ones had pushed it out."""


class LogChunk(Base):
    """Lines of one rank's stream, in the order in which they were relayed. `first` numbers the job's lines from 1, and
    `position` is the first one's position among all that is stored of the job."""

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


class IdempotencyKey(Base):
    """A key that a user sent with a request that made something, and what was answered. Kept for 24 hours."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        Index("ix_idempotency_keys_created_at", "created_at"),
        Index("ix_idempotency_keys_job_id", "job_id"),
    )

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the request: its method, path and body."""
    status: Mapped[int]
    location: Mapped[str] = mapped_column(String(200))
    answer: Mapped[dict[str, Any]]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class DeletedJob(Base):
    """A job that was deleted: its worker still has its run directories to remove."""

    __tablename__ = "deleted_jobs"

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    deleted_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Garbage(Base):
    """A blob that a deleted job or a removed checkpoint left, to be removed if nothing refers to it."""

    __tablename__ = "garbage"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
