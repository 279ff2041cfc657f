"""The look whether there is anything to migrate: it is right wherever it says yes, and leaves the rest to Alembic."""

from contextlib import closing
import os
from pathlib import Path
import sqlite3
import subprocess
import sys

import pytest
from sqlalchemy import text

from migrations.looking import is_current, newest
from store.db import revision
from store.db.database import Database


def _set_revision(url: str, found: str) -> None:
    with closing(Database(url)) as database, database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": found})


def test_the_newest_revision_is_that_of_the_programs() -> None:
    assert newest() == revision.REVISION


def test_current_tables_are_recognized(database_url: str) -> None:
    assert is_current(database_url)


@pytest.mark.parametrize("found", ["0056", "9999", ""])
def test_tables_of_another_revision_are_for_alembic(database_url: str, found: str) -> None:
    _set_revision(database_url, found)
    assert not is_current(database_url)


def test_a_database_without_tables_is_for_alembic(empty_url: str) -> None:
    assert not is_current(empty_url)


def test_a_file_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    assert not is_current(f"sqlite:///{tmp_path / 'new.db'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///", "postgresql://127.0.0.1:1/none", "mysql://127.0.0.1/none"]
)
def test_what_cannot_be_read_is_for_alembic(url: str) -> None:
    assert not is_current(url)


def test_rows_that_a_killed_program_left_in_its_journal_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    leave = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode=WAL');"
        " c.execute('CREATE TABLE alembic_version (version_num TEXT)');"
        " c.execute('INSERT INTO alembic_version VALUES (?)', (sys.argv[2],)); c.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", leave, str(path), newest()], check=True)
    assert path.with_name("data.db-wal").stat().st_size > 0
    assert is_current(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(newest(),)]


def test_an_upgrade_of_current_tables_imports_neither_alembic_nor_sqlalchemy(database_url: str) -> None:
    code = "import sys; from migrations.__main__ import main; sys.argv[1:] = ['upgrade']; assert not main()"
    heavy = "{'alembic', 'sqlalchemy', 'pydantic'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{code}; print({heavy} or 'none')"],
        env=os.environ | {"TORCHYARD_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "none"
