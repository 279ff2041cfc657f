"""Selects the columns of a fact: its fields have their names."""

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy import ColumnElement, Select, and_, case, literal
from sqlalchemy.orm import InstrumentedAttribute

from store.db.tables import Base
from torchyard.contract.checkpointfiles import MOST_SHOWN_FILES_BYTES

T = TypeVar("T")


@cache
def of(fact: type[Any], table: type[Base]) -> tuple[InstrumentedAttribute[Any], ...]:
    """Returns the columns for the fact's fields without a default, in the order of the fields."""
    return tuple(getattr(table, field.name) for field in fields(fact) if field.default is MISSING)


def select(fact: type[Any], table: type[Base]) -> Select[*tuple[Any, ...]]:
    """Returns the query for these columns, whose rows are unpacked into facts."""
    return sqlalchemy.select(*of(fact, table))


def short_files(table: type[Any]) -> ColumnElement[Any]:
    """Returns the files of a checkpoint or a version of a model as a list has them: none where they are long."""
    are_long = and_(table.files_bytes > MOST_SHOWN_FILES_BYTES, table.sent.is_not(None))
    return case((are_long, literal([], table.files.type)), else_=table.files).label("files")


def read(fact: type[T], row: Base) -> T:
    """Returns the fact that a row holds."""
    return fact(*(getattr(row, column.key) for column in of(fact, type(row))))
