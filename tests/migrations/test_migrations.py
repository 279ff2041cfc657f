"""The migrations create the tables that the code declares, and can be downgraded."""

from collections.abc import Callable
from contextlib import closing
import os
from pathlib import Path
import sqlite3
import subprocess
import sys

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
import pytest
from sqlalchemy import inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex
from sqlalchemy.exc import DBAPIError

import migrations
from migrations.__main__ import main
from migrations.actions import configuration
from store.db import revision
from store.db.database import Database
from tests import forks
from tests.approved import Approved
from tests.databases import PostgreSQLDatabases, SQLiteDatabases, quick_on_sqlite
from tests.forked import run
from tests.store.fixture import StoreFixture, run_together

Migrate = Callable[..., tuple[int, str]]

forks.preload("migrations.actions")


def tables(url: str) -> set[str]:
    with closing(Database(url)) as database:
        return set(inspect(database.engine).get_table_names())


def schema(url: str) -> dict[str, object]:
    """Returns every column, key, index and constraint, as reflected."""
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


def test_the_migrations_create_the_declared_tables(empty_url: str) -> None:
    with pytest.raises(CommandError):
        command.check(configuration(empty_url))
    command.upgrade(configuration(empty_url), "head")
    command.check(configuration(empty_url))


@quick_on_sqlite
def test_a_downgrade_and_an_upgrade_restore_the_schema(empty_url: str) -> None:
    command.upgrade(configuration(empty_url), "head")
    before = schema(empty_url)
    command.downgrade(configuration(empty_url), "base")
    assert tables(empty_url) == {"alembic_version"}
    command.upgrade(configuration(empty_url), "head")
    assert schema(empty_url) == before


def test_the_programs_need_the_newest_revision() -> None:
    assert ScriptDirectory.from_config(configuration("sqlite://")).get_current_head() == revision.REVISION


@quick_on_sqlite
def test_an_upgrade_of_a_current_database_keeps_the_rows(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        job_id = StoreFixture(database).submit()
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        assert StoreFixture(database).job(job_id).state == "queued"


def test_large_tables_are_clustered_by_their_key(sqlite: SQLiteDatabases) -> None:
    with sqlite.migrated() as url, closing(Database(url)) as database, database.read() as session:
        made = session.execute(text("SELECT name FROM sqlite_master WHERE sql LIKE '%WITHOUT ROWID%'"))
        large = {"point_chunks", "job_events", "log_chunks", "bundle_uses", "device_samples", "device_days"}
        assert set(made.scalars()) == large


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """Runs the program in this process: its exit code and what it wrote to stderr."""

    def run(*arguments: str, url: str) -> tuple[int, str]:
        monkeypatch.setenv("TORCHYARD_DATABASE_URL", url)
        monkeypatch.setenv("TORCHYARD_DATA_DIR", str(tmp_path / "data"))
        monkeypatch.setattr(sys, "argv", ["migrations", *arguments])
        code = main()
        return code, capsys.readouterr().err

    return run


def start(*arguments: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the program in a process of its own, which is a fork."""
    environment = os.environ | {"TORCHYARD_DATABASE_URL": url, "TORCHYARD_DATA_DIR": str(folder / "data")}
    return run("migrations", *arguments, env=environment, cwd=folder)


@quick_on_sqlite
def test_the_program_migrates_and_checks(empty_url: str, migrate: Migrate) -> None:
    assert migrate(url=empty_url)[0] == 0
    assert "jobs" in tables(empty_url)
    assert migrate("check", url=empty_url)[0] == 0
    assert migrate("downgrade", url=empty_url)[0] == 0
    assert tables(empty_url) == {"alembic_version"}


def test_programs_that_start_together_migrate_one_after_the_other(empty_url: str, tmp_path: Path) -> None:
    calls = [lambda: start(url=empty_url, folder=tmp_path)] * 2
    assert [done for done in run_together(*calls) if isinstance(done, Exception) or done.returncode != 0] == []
    command.check(configuration(empty_url))


def test_a_migration_gives_up_after_a_while_if_a_table_is_in_use(
    postgresql: PostgreSQLDatabases, migrate: Migrate, approved: Approved
) -> None:
    with postgresql.migrated() as url, closing(Database(url)) as database:
        with database.read() as session:
            session.execute(text("SELECT count(*) FROM jobs"))
            code, error = migrate("downgrade", url=url)
        assert code == 1
        assert error == approved("message")
        assert error.count("\n") == 1
        assert "jobs" in tables(url)


LONGER_NAMES = """
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("name", existing_type=sa.String(100), type_=sa.String(200))
"""
FAILS = """
    op.execute("DELETE FROM jobs")
    op.execute("SELECT no_such_column FROM jobs")
"""


def with_next_revision(url: str, folder: Path, statements: str) -> Config:
    """Returns a configuration with one more revision, which is made by the template and executes the statements."""
    config = configuration(url)
    versions = f"{Path(migrations.__file__).parent / 'versions'} {folder}"
    config.set_main_option("path_separator", "space")
    config.set_main_option("version_locations", versions)
    command.revision(config, "The next one", rev_id="9999", version_path=folder)
    (script,) = folder.glob("9999*.py")
    made = script.read_text()
    waits = "limit_lock_waits(op.get_bind())\n"
    assert made.count(waits) == 2
    script.write_text(made.replace(waits, waits + statements, 1))
    return config


def revision_at(url: str) -> str:
    with closing(Database(url)) as database, database.read() as session:
        return str(session.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def test_a_revision_from_the_template_recreates_a_referenced_table(database_url: str, tmp_path: Path) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        claim = db.starting(db.submit(), db.worker())
    command.upgrade(with_next_revision(database_url, tmp_path, LONGER_NAMES), "head")
    with closing(Database(database_url)) as database, database.read() as session:
        assert session.execute(text("SELECT id FROM jobs")).all() == [(claim.job_id,)]
        (name,) = [column for column in inspect(database.engine).get_columns("jobs") if column["name"] == "name"]
        assert str(name["type"]) == "VARCHAR(200)"
        assert StoreFixture(database).attempt(claim).job_id == claim.job_id


def test_a_revision_that_fails_changes_nothing(database_url: str, tmp_path: Path) -> None:
    with closing(Database(database_url)) as database:
        job_id = StoreFixture(database).submit()
    with pytest.raises(DBAPIError):
        command.upgrade(with_next_revision(database_url, tmp_path, FAILS), "head")
    assert revision_at(database_url) == revision.REVISION
    with closing(Database(database_url)) as database:
        assert StoreFixture(database).job(job_id).state == "queued"


def test_rows_with_broken_references_stop_a_migration(
    sqlite: SQLiteDatabases, tmp_path: Path, approved: Approved
) -> None:
    with sqlite.migrated() as url:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("INSERT INTO job_events (job_id, seq, time, type, data) VALUES ('no', 1, 1, 'x', '')")
            connection.commit()
        with pytest.raises(CommandError) as raised:
            command.upgrade(with_next_revision(url, tmp_path, LONGER_NAMES), "head")
        assert str(raised.value) == approved("message")
        assert revision_at(url) == revision.REVISION


@pytest.mark.parametrize("found", ["0056", "9999"])
def test_tables_of_an_unknown_revision_stay_as_they_are_and_the_error_says_what_to_do(
    database_url: str, migrate: Migrate, found: str, approved: Approved
) -> None:
    with closing(Database(database_url)) as database:
        with database.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": found})
        for action in ("upgrade", "downgrade", "current", "check"):
            code, error = migrate(action, url=database_url)
            assert code == 1
            assert error == approved.of_row("message", found=found)
    assert revision_at(database_url) == found


@pytest.mark.parametrize(
    ("url", "arguments"),
    [
        ("nonsense", []),
        ("nodialect://x/y", []),
        ("sqlite:////no/such/folder/x.db", []),
        ("", ["upgrade", "9999"]),
    ],
)
def test_an_error_is_one_line(migrate: Migrate, url: str, arguments: list[str]) -> None:
    code, error = migrate(*arguments, url=url)
    assert code == 1
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_an_error_of_the_program_is_its_exit_code(tmp_path: Path) -> None:
    failed = start(url="nonsense", folder=tmp_path)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: ")
    assert "Traceback" not in failed.stderr


@pytest.mark.thorough
def test_an_upgrade_imports_neither_tables_nor_specs(tmp_path: Path) -> None:
    loaded = "{'store.tables', 'torchyard.contract.spec.spec'} & set(sys.modules)"
    code = "import sys; from migrations.__main__ import main; sys.argv[1:] = ['upgrade']; assert not main()"
    env = os.environ | {
        "TORCHYARD_DATABASE_URL": f"sqlite:///{tmp_path / 'new.db'}",
        "TORCHYARD_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{code}; print({loaded} or 'neither')"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "neither"
