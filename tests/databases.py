"""Databases for tests: SQLite files, or databases of a PostgreSQL server.

`TORCHYARD_TEST_DATABASE` names that server (`postgresql+psycopg://…/postgres`, a user who may create databases).
"""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path
import shutil
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text

SERVER = os.environ.get("TORCHYARD_TEST_DATABASE", "")


@contextmanager
def empty(folder: Path) -> Generator[str]:
    """The URL of a database without tables."""
    if not SERVER:
        yield f"sqlite:///{folder / f'{uuid4().hex}.db'}"
        return
    with _created("template0") as url:
        yield url


@contextmanager
def copy_of(url: str, folder: Path) -> Generator[str]:
    """The URL of a copy of a database to which nobody is connected."""
    source = make_url(url).database
    assert source is not None
    if not SERVER:
        target = folder / f"{uuid4().hex}.db"
        shutil.copy(source, target)
        yield f"sqlite:///{target}"
        return
    with _created(source) as copied:
        yield copied


@contextmanager
def _created(template: str) -> Generator[str]:
    name = f"test_{uuid4().hex}"
    admin = create_engine(SERVER, isolation_level="AUTOCOMMIT")
    try:
        with admin.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        try:
            yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
        finally:
            with admin.connect() as connection:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        admin.dispose()
