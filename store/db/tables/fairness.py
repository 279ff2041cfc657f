"""What a fair queue remembers: kept places, what owners used, and how long their runs took."""

from sqlalchemy import BigInteger, Float, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


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
