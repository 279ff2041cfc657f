"""What all tables share, and the service itself: one row."""

from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Integer,
    MetaData,
    String,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from store.db.database import Document

ONLY_ON = "only_on"
"""The key in `info` of an index for one kind of database: the name of its dialect."""

BigKey = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: Document, list[Any]: Document}


def load_all() -> None:
    """Loads the tables of every domain, whose folders lie beside this one, into the metadata of Base."""
    store = Path(__file__).parents[1]
    for tables in sorted(store.glob("*/tables.py")):
        import_module(f"{store.name}.{tables.parent.name}.tables")


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
