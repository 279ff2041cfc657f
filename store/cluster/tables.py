"""What owners had of the devices, for ever, how well each attempt uses its devices, and tokens of remote workers."""

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from store.db.database import now_us
from store.db.tables import Base


def _by_code_points(length: int) -> TypeEngine[str]:
    """Returns a text that both databases, and Python, sort in the same order."""
    return String(length, collation="C").with_variant(String(length), "sqlite")


class WorkerToken(Base):
    """The token by which a remote worker speaks to the service. Of its secret a digest alone is stored."""

    __tablename__ = "worker_tokens"

    worker_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    """It may be older than the worker's row: that begins when its daemon registers."""
    digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    boot: Mapped[str | None] = mapped_column(String(64))
    """The boot of the host that uses it. NULL: none has yet."""
    refused_at: Mapped[int | None] = mapped_column(BigInteger)
    """When another host with the same token was refused last."""


class DeviceDay(Base):
    """What the ended attempts of an owner had on one day of the devices of one kind. It outlives jobs and users.

    Times are microseconds of one device: two devices for a second are 2,000,000.
    """

    __tablename__ = "device_days"
    __table_args__ = ({"sqlite_with_rowid": False},)

    owner: Mapped[str] = mapped_column(_by_code_points(100), primary_key=True)
    label: Mapped[str] = mapped_column(_by_code_points(300), primary_key=True)
    """As `key=value`, of the job when its attempt ended; empty: of all jobs."""
    day: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Days since the epoch, of UTC."""
    kind: Mapped[str] = mapped_column(String(4), primary_key=True)
    """`cuda` or `cpu`."""
    held_us: Mapped[int] = mapped_column(BigInteger)
    measured_us: Mapped[int] = mapped_column(BigInteger)
    """Of `held_us`, the part in which the utilization is known."""
    busy_us: Mapped[int] = mapped_column(BigInteger)
    """The utilization, summed up over the measured time."""
    idle_us: Mapped[int] = mapped_column(BigInteger)
    """Of the measured time, that with a utilization below 5%."""


class AttemptUse(Base):
    """How well an open attempt uses its GPUs, by its worker's reports. Times of use are as in `DeviceDay`."""

    __tablename__ = "attempt_uses"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), primary_key=True, autoincrement=False)
    seen_at: Mapped[int] = mapped_column(BigInteger)
    """The newest report."""
    measured_us: Mapped[int] = mapped_column(BigInteger)
    busy_us: Mapped[int] = mapped_column(BigInteger)
    idle_us: Mapped[int] = mapped_column(BigInteger)
    idle_since: Mapped[int | None] = mapped_column(BigInteger)
    """Since when all its devices have been below 5%. NULL: they are not, or one of them tells nothing."""
    warned_at: Mapped[int | None] = mapped_column(BigInteger)
    """The time of the job's last warning that it is idle. Reports do not change it."""
    input_at: Mapped[int | None] = mapped_column(BigInteger)
    """When a user last sent anything to a program of theirs in the attempt, to some seconds."""
