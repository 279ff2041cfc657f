"""How many jobs there are."""

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base, BigKey


class JobCount(Base):
    """A change of the number of jobs in a state. The sum over the rows of an owner and a state is that number.

    Triggers on `jobs` add a row for each change, as one row of each state would be waited for by all writers.
    A migration that makes `jobs` anew must make them anew, too.
    """

    __tablename__ = "job_counts"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    visibility: Mapped[str] = mapped_column(String(8))
    state: Mapped[str] = mapped_column(String(16))
    jobs: Mapped[int] = mapped_column(BigInteger)
