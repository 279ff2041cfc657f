"""The service itself: one row."""

from sqlalchemy import BigInteger, CheckConstraint, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from store.db.tables.base import Base


class Service(Base):
    """The service to which the database and one folder of blobs belong."""

    __tablename__ = "service"
    __table_args__ = (CheckConstraint("number = 1", name="one_row"),)

    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, default=1)
    id: Mapped[str] = mapped_column(String(40))
    blobs: Mapped[str | None] = mapped_column(String(5000))
    """The host and the path of the folder of blobs when that was marked with the id. None: it was not marked yet."""
    line_swept_at: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """When a worker last compared the line in Redis with the jobs. Redis has it too, and never a later one."""
    controller_seen_at: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """When a controller last did its duties."""
