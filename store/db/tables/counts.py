"""How many jobs there are, and how many bytes owners have stored."""

from sqlalchemy import BigInteger, Index, String, false
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base, BigKey


class JobCount(Base):
    """A change of the number of jobs in a state. The sum over the rows with the same other columns is that number.

    Triggers on `jobs` add a row for each change, as one row of each state would be waited for by all writers.
    A migration that makes `jobs` anew must make them anew, too.
    """

    __tablename__ = "job_counts"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    visibility: Mapped[str] = mapped_column(String(8))
    state: Mapped[str] = mapped_column(String(16))
    archived: Mapped[bool] = mapped_column(default=False, server_default=false())
    jobs: Mapped[int] = mapped_column(BigInteger)


class StoredCount(Base):
    """A change of the bytes that an owner has stored. The sums over an owner's rows are those bytes.

    Triggers add a row for each change, as one row of an owner would be waited for by all who write for that owner:
    those of `migrations/versions/0060_baseline.py`, on the tables that it names. A migration that makes one of them
    anew must make its triggers anew, too.
    """

    __tablename__ = "stored_counts"
    __table_args__ = (Index("ix_stored_counts_owner", "owner", "files", "written"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    files: Mapped[int] = mapped_column(BigInteger)
    """Bytes of bundles, and of what jobs have stored."""
    written: Mapped[int] = mapped_column(BigInteger)
    """Bytes of what requests have written into the database: specs, points, notes, cards and preferences, events that
    somebody asked for, and entries of the audit."""
