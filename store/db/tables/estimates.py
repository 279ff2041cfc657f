"""When waiting jobs are expected to start, and how well such estimates did."""

from sqlalchemy import BigInteger, Float, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


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
