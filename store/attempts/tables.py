"""Workers, attempts and the devices that they hold, their packages, working folders and requests to keep files."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables import Base, BigKey


class Worker(Base):
    """A daemon, one per host, or one per pool."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    devices: Mapped[list[Any]]
    """Its devices at the last heartbeat, without holders: `torchyard.contract.cluster.devices.DeviceReport` each."""
    started_at: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[int] = mapped_column(BigInteger)
    drain_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    removed_at: Mapped[int | None] = mapped_column(BigInteger)
    """When an administrator removed it: it is in no list, and its attempts alone still name it."""
    starts: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """How it starts jobs: a `torchyard.contract.cluster.devices.StartsReport`."""
    shares_cpus_of: Mapped[str | None] = mapped_column(String(64))
    """The boot of the host whose CPUs it shares with the others that name it. NULL: its CPU slots are its own."""
    pool: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """The pool that it stands for: a `torchyard.contract.cluster.devices.PoolReport`. NULL: it has own devices."""
    holder: Mapped[str | None] = mapped_column(String(255))
    """Of a pool: the daemon that serves it. NULL: none does."""
    remote: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether it reaches the service over HTTPS alone, and not the database."""
    users: Mapped[list[str] | None] = mapped_column(Document)
    """The users whose jobs it takes. NULL: all."""


class DeviceSample(Base):
    """How a worker's devices were used in one slot of time, as `store.cluster.device_history` merges it."""

    __tablename__ = "device_samples"
    __table_args__ = ({"sqlite_with_rowid": False},)

    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"), primary_key=True)
    resolution: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """The length of the slot in seconds."""
    begins: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Seconds since the epoch, a multiple of `resolution`."""
    devices: Mapped[dict[str, Any]]
    """By uuid: mean and greatest utilization, mean of the used memory in bytes, the job that held it, and mean
    power in watts; or null."""


class Attempt(Base):
    """One run of a job. The open row is the fence: every write for the attempt locks it first."""

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
            "ix_attempts_stopped",
            "ended_at",
            sqlite_where=text("stopped_for IS NOT NULL"),
            postgresql_where=text("stopped_for IS NOT NULL"),
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
    pool_devices: Mapped[int] = mapped_column(default=0, server_default="0")
    """The devices of an attempt in a pool, which count from the claim on. 0: it holds devices of its worker."""
    holder: Mapped[str | None] = mapped_column(String(255))
    """Of an attempt in a pool: the daemon that alone may write for it."""
    start_step: Mapped[int] = mapped_column(BigInteger, default=0)
    """The step from which it resumed."""
    hides_after: Mapped[int | None] = mapped_column(BigInteger)
    """Points of earlier attempts beyond this step are hidden. NULL: none, as it has not logged a step yet."""
    launcher: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """The engine's handle, as JSON: a superset of `torchyard.contract.attempts.rundir.ProcessIdentity`."""
    relay_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    """Number of relayed batches, increased by compare-and-set."""
    offsets: Mapped[dict[str, Any]] = mapped_column(Document, default=dict)
    """Relayed bytes of each file of the run directory."""
    relay_lag_us: Mapped[int] = mapped_column(BigInteger, default=0)
    """Age of the oldest line of the newest batch when it was read, in microseconds."""
    reported_at: Mapped[int | None] = mapped_column(BigInteger)
    """When its event log last had something new, by the database's clock. None: nothing yet."""
    stepped_at: Mapped[int | None] = mapped_column(BigInteger)
    """When it first reported a step after `start_step`. None: it has not."""
    checkpoints: Mapped[int] = mapped_column(default=0)
    log_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes of log lines that were stored."""
    message_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes of messages that were stored."""
    point_bytes: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes of metric points that were stored, as they are packed."""
    cut: Mapped[str] = mapped_column(String(100), default="", server_default="")
    """What is not stored any more, since a limit was reached: names separated by spaces, such as `log series`."""
    guest: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether it runs on a place that is kept for another job, because it was believed to end in time."""
    stopped_for: Mapped[str | None] = mapped_column(String(40))
    """The waiting job for which the ended attempt was asked to stop."""
    stacks_requested_at: Mapped[int | None] = mapped_column(BigInteger)
    """When the stacks of the ranks were asked for. None: all requests are answered."""
    stacks: Mapped[dict[str, Any] | None] = mapped_column(Document, deferred=True)
    """The newest answer: a `store.output.facts.Answer`. Up to 1 MiB, so it is not read with the row."""
    started_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    running_at: Mapped[int | None] = mapped_column(BigInteger)
    """When the process of every rank existed. None: not yet, or it never came to that."""
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    end_reason: Mapped[str | None] = mapped_column(String(20))
    detail: Mapped[str | None] = mapped_column(CleanText)
    environment: Mapped[dict[str, Any] | None] = mapped_column(Document)
    """The environment that its job names, as it was then: a `torchyard.contract.cluster.devices.EnvironmentReport`."""


class Allocation(Base):
    """A device that an attempt holds or held. An open allocation excludes every other attempt."""

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
    kind: Mapped[str] = mapped_column(String(4), default="cpu", server_default="cpu")
    """`cuda` or `cpu`."""
    released_at: Mapped[int | None] = mapped_column(BigInteger)


class JobPackages(Base):
    """What the newest attempt that reported it had installed. A row of its own: who reads a job does not read it."""

    __tablename__ = "job_packages"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    attempt: Mapped[int]
    document: Mapped[dict[str, Any]]
    """Versions by names."""


class WorkFolder(Base):
    """The folder of a job on one host, as its worker measured it last. A row may outlive its job by a pass."""

    __tablename__ = "work_folders"
    __table_args__ = (Index("ix_work_folders_worker_id", "worker_id"),)

    job_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(40), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    """Bytes on the disk."""
    measured_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class KeepRequest(Base):
    """The newest request to store files of a job's working folder, which the worker answers on whose host that is."""

    __tablename__ = "keep_requests"
    __table_args__ = (
        Index(
            "ix_keep_requests_open",
            "worker_id",
            sqlite_where=text("answered_at IS NULL"),
            postgresql_where=text("answered_at IS NULL"),
        ),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker_id: Mapped[str] = mapped_column(ForeignKey("workers.id"))
    attempt: Mapped[int]
    """The newest of the job when it was asked."""
    paths: Mapped[list[Any]] = mapped_column(Document)
    requested_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    answered_at: Mapped[int | None] = mapped_column(BigInteger)
    """NULL: the worker has not come to its end."""
    refused: Mapped[str | None] = mapped_column(CleanText)
    """Why nothing was stored, or what was not."""
    files: Mapped[int] = mapped_column(default=0, server_default="0")
    """Files that were stored for it."""
    size: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes of these files."""
    copied: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Bytes that were copied, with those of a file that is not whole yet."""
