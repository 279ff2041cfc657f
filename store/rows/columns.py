"""Selects the columns of a fact: its fields have their names."""

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy import Select
from sqlalchemy.orm import InstrumentedAttribute

from store.db.tables import Base

T = TypeVar("T")


@cache
def of(fact: type[Any], table: type[Base]) -> tuple[InstrumentedAttribute[Any], ...]:
    """Returns the columns for the fact's fields without a default, in the order of the fields."""
    return tuple(getattr(table, field.name) for field in fields(fact) if field.default is MISSING)


def select(fact: type[Any], table: type[Base]) -> Select[*tuple[Any, ...]]:
    """Returns the query for these columns, whose rows are unpacked into facts."""
    return sqlalchemy.select(*of(fact, table))


def read(fact: type[T], row: Base) -> T:
    """Returns the fact that a row holds."""
    return fact(*(getattr(row, column.key) for column in of(fact, type(row))))
