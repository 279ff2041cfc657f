"""Selects what a fact has: its fields are named as the columns of a table."""

from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

from sqlalchemy.orm import InstrumentedAttribute

from store.db.tables import Base

T = TypeVar("T")


@cache
def of(fact: type[Any], table: type[Base]) -> tuple[InstrumentedAttribute[Any], ...]:
    """Returns the columns to select for the fields that have no default, in their order: the fact is made of them."""
    return tuple(getattr(table, field.name) for field in fields(fact) if field.default is MISSING)


def read(fact: type[T], row: Base) -> T:
    """Returns what the row of a table says."""
    return fact(*(getattr(row, column.key) for column in of(fact, type(row))))
