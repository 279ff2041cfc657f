"""Statements that are compiled once for each kind of database, and executed without the unit of work.

Requests that are made often use them: compiling and processing a statement costs several times what executing it does.
"""

from collections import namedtuple
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
import json
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    ColumnElement,
    Connection,
    Insert,
    Select,
    String,
    TableClause,
    Text,
    bindparam,
    cast,
    column,
    func,
    insert,
    select,
)
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

_KEY = "torchyard.connection"
_NO_VALUES: Mapping[str, Any] = MappingProxyType({})


class _among(FunctionElement[bool]):
    """Whether a column has one of the texts of a JSON list."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Any:
        return self  # otherwise SQLite is asked whether the condition is 1, and uses no index


@compiles(_among, "sqlite")
def _among_sqlite(element: _among, compiler: SQLCompiler, **options: Any) -> str:
    wanted, listed = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({wanted} IN (SELECT value FROM json_each({listed})))"  # noqa: S608


@compiles(_among, "postgresql")
def _among_postgresql(element: _among, compiler: SQLCompiler, **options: Any) -> str:
    wanted, listed = (compiler.process(clause, **options) for clause in element.clauses)
    # An array, as PostgreSQL reads a whole table to join it with a list of which it does not know the length.
    return f"({wanted} = ANY(ARRAY(SELECT json_array_elements_text(CAST({listed} AS JSON)))))"


def among(column: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
    """Returns the condition that the column has one of the texts that are given as `texts`, however many they are."""
    return _among(column, bindparam(parameter))


def texts(values: Collection[str]) -> str:
    """Returns the value of a parameter of `among`."""
    return json.dumps(sorted(values))


@dataclass(frozen=True)
class _Compiled:
    text: str
    order: tuple[str, ...] | None
    """The names of the parameters, where the driver takes them by their positions."""
    constants: Mapping[str, Any]

    def parameters(self, values: Mapping[str, Any]) -> Any:
        if self.order is None:
            return {**self.constants, **values}
        return tuple([values[name] if name in values else self.constants[name] for name in self.order])


class Prepared:
    """A statement. Values reach the driver unchanged: a JSON column takes text, of `store.db.database.document`."""

    def __init__(self, statement: ClauseElement, *, columns: Sequence[str] | None = None) -> None:
        """`columns`: those of an INSERT, all of which each row has. The others get their defaults."""
        self._statement = statement
        self._columns = columns
        self._compiled: dict[str, _Compiled] = {}
        self._makes: dict[str, Callable[[Iterable[Any]], Any]] = {}
        """What makes a row of the driver's values, by the kind of database."""
        self._many: _Compiled | None = None

    def read(self, session: Session, values: Mapping[str, Any] = _NO_VALUES) -> Sequence[Sequence[Any]]:
        """Returns the rows of a SELECT as the driver has them."""
        connection = _connection(session)
        compiled = self._for(connection.dialect)
        with Cursor(connection, compiled.text) as cursor:
            cursor.execute(compiled.text, compiled.parameters(values))
            return cursor.fetchall()

    def rows(self, session: Session, values: Mapping[str, Any] = _NO_VALUES) -> list[Any]:
        """Returns the rows of a SELECT, with columns by name and of their types, as a session would."""
        dialect = _connection(session).dialect
        make = self._makes.get(dialect.name)
        if make is None:
            assert isinstance(self._statement, Select)
            make = self._makes[dialect.name] = _row_of(self._statement, dialect)
        return [make(row) for row in self.read(session, values)]

    def first(self, session: Session, values: Mapping[str, Any] = _NO_VALUES) -> Any:
        """Returns the first row, None without any."""
        return next(iter(self.rows(session, values)), None)

    @contextmanager
    def opened(self, session: Session, values: Mapping[str, Any]) -> Generator[DBAPICursor]:
        """Executes a SELECT, and yields its cursor. The database keeps the rows until they are fetched."""
        connection = _connection(session)
        compiled = self._for(connection.dialect)
        with Cursor(connection, compiled.text, keeps_rows=True) as cursor:
            cursor.execute(compiled.text, compiled.parameters(values))
            yield cursor

    def write(self, session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts the rows. An UPDATE or a DELETE is executed with the values of one."""
        connection = _connection(session)
        if len(rows) > 1 and connection.dialect.name == "postgresql":
            self._write_at_once(connection, rows)
            return
        compiled = self._for(connection.dialect)
        with Cursor(connection, compiled.text) as cursor:
            if len(rows) == 1:
                cursor.execute(compiled.text, compiled.parameters(rows[0]))
            else:
                cursor.executemany(compiled.text, [compiled.parameters(row) for row in rows])

    def _write_at_once(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        # By one statement: the triggers of a table, which count jobs, act once for each.
        compiled = self._for_many(connection.dialect)
        with Cursor(connection, compiled.text) as cursor:
            cursor.execute(compiled.text, compiled.parameters({"rows": json.dumps(rows)}))

    def _for(self, dialect: Dialect) -> _Compiled:
        known = self._compiled.get(dialect.name)
        if known is None:
            known = self._compiled[dialect.name] = _compile(self._statement, self._columns, dialect)
        return known

    def _for_many(self, dialect: Dialect) -> _Compiled:
        if self._many is None:
            assert isinstance(self._statement, Insert)
            self._many = _compile(_of_many(self._statement.table, self._columns or ()), None, dialect)
        return self._many


def _connection(session: Session) -> Connection:
    """Returns the connection of the session's transaction, for which each session is asked once."""
    if isinstance(session.bind, Connection):
        return session.bind
    known: Connection | None = session.info.get(_KEY)
    if known is None or known.closed:
        known = session.info[_KEY] = session.connection()
    return known


class Cursor:
    """A cursor of the driver in the connection's transaction. Raises what the connection itself does.

    A class, because a generator would cost as much as the statement.
    """

    def __init__(self, connection: Connection, text: str, *, keeps_rows: bool = False) -> None:
        self._connection = connection
        self._text = text
        # Without a name, PostgreSQL would send all rows at once. SQLite's cursors have no names, and never do that.
        self._options = {"name": "kept"} if keeps_rows and connection.dialect.name == "postgresql" else {}

    def __enter__(self) -> DBAPICursor:
        self._cursor = self._connection.connection.cursor(**self._options)
        return self._cursor

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        dialect = self._connection.dialect
        if not isinstance(error, dialect.loaded_dbapi.Error):
            self._cursor.close()
            return
        lost = dialect.is_disconnect(error, self._connection.connection.driver_connection, self._cursor)
        if lost:
            self._connection.invalidate(error)
        base: type[Exception] = dialect.loaded_dbapi.Error
        raise DBAPIError.instance(
            self._text, None, error, base, connection_invalidated=lost, dialect=dialect
        ) from error


def _row_of(statement: Select[Any], dialect: Dialect) -> Callable[[Iterable[Any]], Any]:
    """Returns what makes a row of the statement of its values."""
    columns = statement.selected_columns
    types = [column.type.dialect_impl(dialect) for column in columns]
    processes = [
        (index, process) for index, type_ in enumerate(types) if (process := type_.result_processor(dialect, None))
    ]
    row: Any = namedtuple("row", columns.keys())  # pyright: ignore[reportUntypedNamedTuple] - any columns
    if not processes:
        return row._make

    def make(values: Iterable[Any]) -> Any:
        fields = list(values)
        for index, process in processes:
            fields[index] = process(fields[index])
        return row._make(fields)

    return make


def _of_many(into: TableClause, names: Sequence[str]) -> Insert:
    """Returns PostgreSQL's statement that inserts a JSON list of rows. The other columns get their defaults."""
    sent = func.json_to_recordset(cast(bindparam("rows", type_=Text()), JSON))
    rows = sent.table_valued(*(column(name, Text()) for name in names)).render_derived(with_types=True)
    values = (
        rows.c[name] if isinstance(into.c[name].type, String) else cast(rows.c[name], into.c[name].type)
        for name in names
    )
    return insert(into).from_select([*names], select(*values))


def _compile(statement: ClauseElement, columns: Sequence[str] | None, dialect: Dialect) -> _Compiled:
    compiled: Any = statement.compile(dialect=dialect, column_keys=columns)
    order = tuple(compiled.positiontup) if compiled.positional else None
    defaults = {column.key: column.default.arg for column in compiled.insert_prefetch or ()}
    constants: dict[str, Any] = compiled.construct_params(_check=False)
    for parameter, name in compiled.bind_names.items():
        process = parameter.type.dialect_impl(dialect).bind_processor(dialect)
        if process is not None and constants[name] is not None:
            constants[name] = process(constants[name])  # such as the path of a value in JSON
    return _Compiled(str(compiled), order, {**constants, **defaults})
