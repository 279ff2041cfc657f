"""Selects the columns of a record: its fields have their names, and a field of type datetime is a time of the store."""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel
import sqlalchemy
from sqlalchemy import BigInteger, ColumnElement, Dialect, Select, TypeDecorator, and_, case, literal, type_coerce

from store.db.tables import Base
from torchyard.contract.files.paths import MOST_SHOWN_FILES_BYTES

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
def select_fields(record: type[Any], table: type[Base]) -> tuple[Any, ...]:
    """Returns the columns for the record's fields without a default, in their order. A view has all its fields."""
    return tuple(_column(getattr(table, name), is_time=is_time) for name, is_time in _stored_fields(record).items())


def select(record: type[Any], table: type[Base]) -> Select[*tuple[Any, ...]]:
    """Returns the query for these columns, whose rows are unpacked into records."""
    return sqlalchemy.select(*select_fields(record, table))


def read(record: type[T], row: Base) -> T:
    """Returns the record that a row holds."""
    values = {name: getattr(row, name) for name in _stored_fields(record)}
    times = [name for name, is_time in _stored_fields(record).items() if is_time and values[name] is not None]
    return record(**values | {name: to_time(values[name]) for name in times})


def views(view: type[T], rows: Iterable[Sequence[Any]]) -> list[T]:
    """Returns the views that the rows of `select` hold."""
    return [view(**dict(zip(_stored_fields(view), row, strict=True))) for row in rows]


def short_files(table: type[Any]) -> ColumnElement[Any]:
    """Returns the files of a checkpoint or a version of a model as a list has them: none where they are long."""
    are_long = and_(table.files_bytes > MOST_SHOWN_FILES_BYTES, table.sent.is_not(None))
    return case((are_long, literal([], table.files.type)), else_=table.files).label("files")


@cache
def _stored_fields(record: type[Any]) -> dict[str, bool]:
    """Returns the names of the fields without a default, of a view those of all, and whether each is a time."""
    types = get_type_hints(record)
    if issubclass(record, BaseModel):
        names = [*record.model_fields]
    else:
        names = [field.name for field in fields(record) if field.default is MISSING]
    return {name: types[name] in {datetime, datetime | None} for name in names}


def _column(column: ColumnElement[Any], *, is_time: bool) -> ColumnElement[Any]:
    return type_coerce(column, Instant).label(column.key) if is_time else column


def to_time(microseconds: int) -> datetime:
    """Returns the time that a number of microseconds since the epoch stands for."""
    return _EPOCH + timedelta(microseconds=microseconds)
