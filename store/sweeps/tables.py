"""Sweeps, and the trials that they have made."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables import Base
from torchyard.contract.sweeps.spec import SweepState

_STATES = ", ".join(f"'{state}'" for state in SweepState if not state.ended)
_ACTIVE = text(f"state IN ({_STATES})")


class Sweep(Base):
    """A sweep of a user. Only `store.sweeps.sweeps` writes `state`."""

    __tablename__ = "sweeps"
    __table_args__ = (
        UniqueConstraint("owner", "idempotency_key"),
        Index("ix_sweeps_active", "id", sqlite_where=_ACTIVE, postgresql_where=_ACTIVE),
        Index("ix_sweeps_owner_id", "owner", "id"),
        Index("ix_sweeps_visibility_id", "visibility", "id"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    name: Mapped[str] = mapped_column(String(100))
    visibility: Mapped[str] = mapped_column(String(8))
    """A `torchyard.contract.team.roles.Visibility`, of its jobs, too."""
    spec: Mapped[dict[str, Any]]
    """A `torchyard.contract.sweeps.spec.SweepSpec` with every default."""
    method: Mapped[str] = mapped_column(String(16))
    monitor: Mapped[str] = mapped_column(String(200))
    mode: Mapped[str] = mapped_column(String(3))
    state: Mapped[str] = mapped_column(String(16))
    version: Mapped[int] = mapped_column(default=1)
    """Rises with its state and with what is asked of it."""
    reason_code: Mapped[str] = mapped_column(String(40))
    reason_message: Mapped[str] = mapped_column(CleanText)
    reason_since: Mapped[int] = mapped_column(BigInteger, default=now_us())
    asked: Mapped[str | None] = mapped_column(String(8))
    """`pause`, `resume` or `cancel`, while its jobs are asked for it one after another."""
    asked_to: Mapped[int] = mapped_column(default=0)
    """The number of the next trial whose job is asked."""
    total: Mapped[int]
    """How many trials there will be."""
    next_number: Mapped[int] = mapped_column(default=0)
    """The number of the next trial, and how many there are."""
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    fingerprint: Mapped[str | None] = mapped_column(String(64))
    """The digest of the request that came with `idempotency_key`, as in `IdempotencyKey`."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    finished_at: Mapped[int | None] = mapped_column(BigInteger)


class SweepTrial(Base):
    """A trial, whose row came with its job in one transaction, and stays when the job is deleted."""

    __tablename__ = "sweep_trials"
    __table_args__ = (Index("ix_sweep_trials_outcome", "sweep_id", "outcome"),)

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    point: Mapped[dict[str, Any]]
    job_id: Mapped[str | None] = mapped_column(String(40))
    """Null if the job was deleted, or was refused."""
    outcome: Mapped[str | None] = mapped_column(String(16))
    """How its job has ended, `failed` for one that was refused; null as long as it may still run."""
    value: Mapped[Any | None] = mapped_column(Document)
    """The best value of a job that has ended; `"NaN"` if it measured nothing else, null if nothing at all."""
    error: Mapped[str | None] = mapped_column(CleanText)
    """Why its job was refused."""
    rungs: Mapped[list[Any]] = mapped_column(Document, default=list)
    """`{at, value}` each: what a trial of `asha` had where it stopped."""
