"""How many jobs there are."""

from sqlalchemy import BigInteger, String, false
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
