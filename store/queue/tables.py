"""What a fair queue remembers: reservations, use by owner, how long runs took, and estimates of starts."""

from sqlalchemy import BigInteger, Float, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables import Base


class Reservation(Base):
    """A place, which is a worker's devices of one kind, and the waiting job that it is kept for.

    A row is never deleted, so that no version comes twice.
    """

    __tablename__ = "reservations"
    __table_args__ = (UniqueConstraint("job_id"),)

    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(4), primary_key=True)
    """`cuda` or `cpu`."""
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    """None: the place is kept for nobody."""
    due: Mapped[int] = mapped_column(BigInteger)
    """When the job can start there, if those that run end when they are believed to."""
    bound: Mapped[int] = mapped_column(BigInteger)
    """When it can start there at the latest, by time limits."""
    since: Mapped[int] = mapped_column(BigInteger)
    """When the place was first kept for this job."""
    version: Mapped[int] = mapped_column(BigInteger)
    """Rises by one with every change; the first is 1."""


class Usage(Base):
    """What an owner's ended attempts used of the devices of one kind. It outlives the jobs."""

    __tablename__ = "usage"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    kind: Mapped[str] = mapped_column(String(4), primary_key=True)
    used_s: Mapped[float] = mapped_column(Float(53))
    """Device seconds, decayed to `at` as in `scheduling.usage`."""
    at: Mapped[int] = mapped_column(BigInteger)


class RunLengths(Base):
    """How long the last two successful jobs of an owner with one trainer ran, each over all its attempts."""

    __tablename__ = "run_lengths"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    trainer: Mapped[str] = mapped_column(String(40), primary_key=True)
    last_us: Mapped[int] = mapped_column(BigInteger)
    before_us: Mapped[int | None] = mapped_column(BigInteger)


class ForecastLease(Base):
    """Which worker makes the estimates: one row. Who takes it raises `token`, and writes only while it is theirs."""

    __tablename__ = "forecast_lease"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Always 1."""
    holder: Mapped[str] = mapped_column(String(40))
    """The id of a worker."""
    token: Mapped[int] = mapped_column(BigInteger)
    until: Mapped[int] = mapped_column(BigInteger)
    made_at: Mapped[int | None] = mapped_column(BigInteger)
    """When the newest estimates were made."""
    after: Mapped[int | None] = mapped_column(BigInteger)
    """Jobs that are too far behind to be looked at start after this. NULL: there is none, or nobody knows."""


class Estimate(Base):
    """The newest estimate of a queued job."""

    __tablename__ = "estimates"

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    made_at: Mapped[int] = mapped_column(BigInteger)
    expected: Mapped[int | None] = mapped_column(BigInteger)
    """NULL: it starts after `low`."""
    low: Mapped[int | None] = mapped_column(BigInteger)
    high: Mapped[int | None] = mapped_column(BigInteger)
    bucket: Mapped[int | None]
    """The row of `calibrations` by which it was made. NULL: none."""


class Forecast(Base):
    """An estimate that is scored when the job has started: the first of each queueing, and one an hour."""

    __tablename__ = "forecasts"
    __table_args__ = (
        Index(
            "ix_forecasts_pending",
            "job_id",
            sqlite_where=text("scored_at IS NULL"),
            postgresql_where=text("scored_at IS NULL"),
        ),
        Index("ix_forecasts_bucket_scored_at", "bucket", "scored_at"),
    )

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """The number that the attempt for which it waits will have."""
    hour: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Full hours from the first estimate of this queueing to this one."""
    made_at: Mapped[int] = mapped_column(BigInteger)
    wait_us: Mapped[int] = mapped_column(BigInteger)
    """What the replay said, before any correction."""
    bucket: Mapped[int]
    low: Mapped[int | None] = mapped_column(BigInteger)
    high: Mapped[int | None] = mapped_column(BigInteger)
    scored_at: Mapped[int | None] = mapped_column(BigInteger)
    log_ratio: Mapped[float | None] = mapped_column(Float(53))
    """Of the wait that it was to the one that the replay said, as `scheduling.calibration` has it."""
    held: Mapped[bool | None]
    """Whether the job started between `low` and `high`. NULL, too: there was no interval."""


class Calibration(Base):
    """What the scores of a bucket of waits have taught: see `scheduling.calibration`."""

    __tablename__ = "calibrations"

    bucket: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    level: Mapped[float] = mapped_column(Float(53))
    """Half the width of the next interval, as `scheduling.calibration` has it."""
    scored: Mapped[int] = mapped_column(BigInteger)
    """How many were scored, ever."""
    held: Mapped[int]
    """Of the newest scores, of which `scheduling.calibration` keeps so many: how many held."""
    of: Mapped[int]
    """How many of these had an interval."""
