"""Reads JSON of the database as text, where the type of its column would take longer."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Integer, Text, cast, func
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator


class Parsed(TypeDecorator[Any]):
    """JSON that was cast to text. It must have few levels: this parser takes 200 at most."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else from_json(value)


class without_traceback(FunctionElement[Any]):
    """A job's error without its traceback, which may be large."""

    inherit_cache = True
    type = Text()


@compiles(without_traceback, "sqlite")
def _on_sqlite(element: without_traceback, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_remove({compiler.process(element.clauses, **options)}, '$.traceback')"


@compiles(without_traceback, "postgresql")
def _on_postgresql(element: without_traceback, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)} - 'traceback')"


class checkpoint_policy(FunctionElement[Any]):
    """The `checkpoint` of a job's spec, as JSON. None if the spec has none."""

    inherit_cache = True
    type = Text()


@compiles(checkpoint_policy, "sqlite")
def _policy_on_sqlite(element: checkpoint_policy, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **options)}, '$.checkpoint')"


@compiles(checkpoint_policy, "postgresql")
def _policy_on_postgresql(element: checkpoint_policy, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **options)} -> 'checkpoint' AS TEXT)"


class bytes_of(FunctionElement[int]):
    """How many bytes the JSON of a document has."""

    inherit_cache = True
    type = Integer()


@compiles(bytes_of, "sqlite")
def _bytes_on_sqlite(element: bytes_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"length(CAST({compiler.process(element.clauses, **options)} AS BLOB))"


@compiles(bytes_of, "postgresql")
def _bytes_on_postgresql(element: bytes_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length(CAST({compiler.process(element.clauses, **options)} AS TEXT))"


def values_at(document: ColumnElement[Any], paths: Sequence[Sequence[str]], *, dialect: str) -> ColumnElement[Any]:
    """Returns the values at the paths of a document, as JSON: a list with one more item. null is what is not there.

    A path's keys have no quotes and do not begin with a digit.
    """
    if dialect == "postgresql":
        elements = (document.op("#>")(cast(list(path), ARRAY(Text))) for path in paths)
        return cast(func.jsonb_build_array(*elements, None), Parsed)
    written = ("$." + ".".join(f'"{key}"' for key in path) for path in paths)
    # SQLite answers a list where it is asked for more than one, and only there tells truth values from numbers.
    return cast(func.json_extract(document, *written, '$.""'), Parsed)
