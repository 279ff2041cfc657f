"""The migrations: the tables they make are the tables that the code uses, and they can be taken back."""

from contextlib import closing
import os
from pathlib import Path
import subprocess
import sys

from alembic import command
from alembic.util import CommandError
import pytest
from sqlalchemy import inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex

from migrations.__main__ import configuration
from store.database import Database
from tests.databases import SQLiteDatabases
from tests.store.yard import Yard


def tables(url: str) -> set[str]:
    with closing(Database(url)) as database:
        return set(inspect(database.engine).get_table_names())


def schema(url: str) -> dict[str, object]:
    """Every column, key, index and constraint, as the database tells them."""
    with closing(Database(url)) as database:
        found = inspect(database.engine)
        return {
            name: (
                [str(column) for column in found.get_columns(name)],
                found.get_pk_constraint(name),
                sorted(map(str, found.get_foreign_keys(name))),
                sorted(_index(index) for index in found.get_indexes(name)),
                sorted(map(str, found.get_unique_constraints(name))),
                sorted(map(str, found.get_check_constraints(name))),
            )
            for name in found.get_table_names()
        }


def _index(index: ReflectedIndex) -> str:
    where = [str(value) for key, value in index.get("dialect_options", {}).items() if key.endswith("_where")]
    return f"{index['name']} {index['column_names']} {index['unique']} {where}"


def test_the_migrations_make_what_the_code_declares(empty_url: str) -> None:
    with pytest.raises(CommandError):
        command.check(configuration(empty_url))
    command.upgrade(configuration(empty_url), "head")
    command.check(configuration(empty_url))


def test_down_and_up_again(empty_url: str) -> None:
    command.upgrade(configuration(empty_url), "head")
    before = schema(empty_url)
    command.downgrade(configuration(empty_url), "base")
    assert tables(empty_url) == {"alembic_version"}
    command.upgrade(configuration(empty_url), "head")
    assert schema(empty_url) == before


def test_an_upgrade_of_what_is_up_to_date_keeps_the_rows(empty_url: str) -> None:
    command.upgrade(configuration(empty_url), "head")
    with closing(Database(empty_url)) as database:
        job_id = Yard(database).submit()
    command.upgrade(configuration(empty_url), "head")
    with closing(Database(empty_url)) as database:
        assert Yard(database).job(job_id).state == "queued"


def test_many_rows_are_clustered_by_their_key(sqlite: SQLiteDatabases) -> None:
    with sqlite.migrated() as url, closing(Database(url)) as database, database.read() as session:
        made = session.execute(text("SELECT name FROM sqlite_master WHERE sql LIKE '%WITHOUT ROWID%'"))
        assert set(made.scalars()) == {"point_chunks", "job_events", "log_chunks"}


def migrate(*arguments: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TORCHYARD_DATABASE_URL": url, "TORCHYARD_DATA_DIR": str(folder / "data")}
    argv = [sys.executable, "-P", "-m", "migrations", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_the_program_migrates_and_checks(empty_url: str, tmp_path: Path) -> None:
    assert migrate(url=empty_url, folder=tmp_path).returncode == 0
    assert "jobs" in tables(empty_url)
    assert migrate("check", url=empty_url, folder=tmp_path).returncode == 0
    assert migrate("downgrade", url=empty_url, folder=tmp_path).returncode == 0
    assert tables(empty_url) == {"alembic_version"}


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("nonsense", []),
        ("nodialect://x/y", []),
        ("sqlite:////no/such/folder/x.db", []),
        ("", ["upgrade", "9999"]),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, url: str, arguments: list[str]) -> None:
    failed = migrate(*arguments, url=url, folder=tmp_path)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.splitlines()[0].startswith("error: ")
    assert "Traceback" not in failed.stderr
