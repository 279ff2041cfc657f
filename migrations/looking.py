"""Looks with the database's driver alone whether its tables are current: Alembic and SQLAlchemy take half a second."""

from contextlib import closing
from pathlib import Path
import sqlite3
from urllib.parse import quote

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_FOUND = "SELECT version_num FROM alembic_version"
_LONGEST_WAIT_S = 5


def is_current(url: str) -> bool:
    """Returns whether the tables are at the newest revision. False also where only Alembic can tell, and say why not.

    An address in an unusual form, a database that does not answer, and one without tables are for Alembic.
    """
    try:
        if (path := _file_of(url)) is not None:
            return _sqlite(path) == [(newest(),)]
        if (address := _address_of(url)) is not None:
            return _postgresql(address) == [(newest(),)]
    except Exception:  # noqa: BLE001 - whatever it is, Alembic meets it again, and its words are better
        return False
    return False


def newest() -> str:
    """Returns the newest revision: the files of the revisions are named by them."""
    return max(path.name.partition("_")[0] for path in (Path(__file__).parent / "versions").glob("[0-9]*_*.py"))


def _file_of(url: str) -> str | None:
    """Returns the file of a SQLite database; None if it is another one, or SQLAlchemy may read more in the address."""
    path = url.removeprefix(_SQLITE)
    return None if path == url or path.startswith("file:") or "?" in path else path


def _address_of(url: str) -> str | None:
    """Returns the address for libpq; None if it is another database, or SQLAlchemy may read it differently."""
    scheme, _, rest = url.partition("://")
    alike = scheme in _POSTGRESQL and not {"%", "+"} & set(rest) and rest.count("host=") <= 1
    return f"postgresql://{rest}" if alike else None


def _sqlite(path: str) -> list[tuple[str]]:
    # `rw` makes no file. A program that was killed may have left a journal, which a reader must be able to apply.
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True, timeout=_LONGEST_WAIT_S)) as connection:
        return connection.execute(_FOUND).fetchall()


def _postgresql(address: str) -> list[tuple[str]]:
    import psycopg  # not needed for SQLite

    with psycopg.connect(address, connect_timeout=_LONGEST_WAIT_S) as connection:
        return connection.execute(_FOUND).fetchall()
