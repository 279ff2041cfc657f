"""Selects the columns of a record: its fields have their names, and a field of type datetime is a time of the store."""

from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, get_type_hints

import sqlalchemy
from sqlalchemy import BigInteger, ColumnElement, Dialect, Select, TypeDecorator, and_, case, literal, type_coerce

from store.db.tables import Base
from torchyard.contract.checkpointfiles import MOST_SHOWN_FILES_BYTES

T = TypeVar("T")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """Microseconds since the epoch in the database, a datetime in UTC where a row is read."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Returns the microseconds."""
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Returns the time."""
        return None if value is None else to_time(value)


@cache
def of(record: type[Any], table: type[Base]) -> tuple[Any, ...]:
    """Returns the columns for the record's fields without a default, in the order of the fields."""
    return tuple(_column(getattr(table, name), is_time=is_time) for name, is_time in _stored_fields(record).items())


def select(record: type[Any], table: type[Base]) -> Select[*tuple[Any, ...]]:
    """Returns the query for these columns, whose rows are unpacked into records."""
    return sqlalchemy.select(*of(record, table))


def read(record: type[T], row: Base) -> T:
    """Returns the record that a row holds."""
    values = ((getattr(row, name), is_time) for name, is_time in _stored_fields(record).items())
    return record(*(to_time(value) if is_time and value is not None else value for value, is_time in values))


def short_files(table: type[Any]) -> ColumnElement[Any]:
    """Returns the files of a checkpoint or a version of a model as a list has them: none where they are long."""
    are_long = and_(table.files_bytes > MOST_SHOWN_FILES_BYTES, table.sent.is_not(None))
    return case((are_long, literal([], table.files.type)), else_=table.files).label("files")


@cache
def _stored_fields(record: type[Any]) -> dict[str, bool]:
    """Returns the names of the fields without a default, and whether each is a time."""
    types = get_type_hints(record)
    return {
        field.name: types[field.name] in {datetime, datetime | None}
        for field in fields(record)
        if field.default is MISSING
    }


def _column(column: ColumnElement[Any], *, is_time: bool) -> ColumnElement[Any]:
    return type_coerce(column, Instant).label(column.key) if is_time else column


def to_time(microseconds: int) -> datetime:
    """Returns the time that a number of microseconds since the epoch stands for."""
    return _EPOCH + timedelta(microseconds=microseconds)
