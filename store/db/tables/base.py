"""What all tables share."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    MetaData,
)
from sqlalchemy.orm import DeclarativeBase

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
