"""Prepared statements whose rows have names, and the types of their columns."""

from collections import namedtuple
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.orm import Session

from store.db.prepared import Prepared

_NO_VALUES: Mapping[str, Any] = MappingProxyType({})
_Process = Callable[[Any], Any]


class Typed(Prepared):
    """A statement that returns rows. Build it once: the first execution on each kind of database compiles it."""

    def __init__(self, statement: Any) -> None:
        """`statement`: a SELECT, or one with RETURNING, whose columns have different names."""
        super().__init__(statement)
        self._columns_of_row = statement.exported_columns
        self._row: Any = namedtuple("Row", self._columns_of_row.keys())  # pyright: ignore[reportUntypedNamedTuple] - any
        self._processes: dict[str, list[tuple[int, _Process]]] = {}

    def rows(self, session: Session, values: Mapping[str, Any] = _NO_VALUES) -> list[Any]:
        """Returns the rows, as a session would."""
        found = self.read(session, values)
        if not found:
            return []
        make, processes = self._row._make, self._processes_for(session.get_bind().dialect)
        if not processes:
            return [make(row) for row in found]
        rows: list[Any] = []
        for row in found:
            values_of_row = list(row)
            for place, process in processes:
                values_of_row[place] = process(values_of_row[place])
            rows.append(make(values_of_row))
        return rows

    def first(self, session: Session, values: Mapping[str, Any] = _NO_VALUES) -> Any:
        """Returns the first row, None without any."""
        return next(iter(self.rows(session, values)), None)

    def _processes_for(self, dialect: Dialect) -> list[tuple[int, _Process]]:
        """Returns what turns a value of the driver into one of Python, by the place of its column."""
        known = self._processes.get(dialect.name)
        if known is None:
            types = [column.type.dialect_impl(dialect) for column in self._columns_of_row]
            made = [type_.result_processor(dialect, None) for type_ in types]
            known = [(place, process) for place, process in enumerate(made) if process is not None]
            self._processes[dialect.name] = known
        return known
