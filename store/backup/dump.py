"""Dumps one snapshot of the database while others write, and loads it into an empty database."""

from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import sqlite3
import subprocess
from typing import Literal, cast

from sqlalchemy import MetaData, inspect, select, text
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.orm import Session

from store import service_identity
from store.backup.contents import create_private
from store.blobs import holding
from store.db.database import Database
from store.db.revision import OLDEST, revision_of, too_old
from store.service_identity import Known
from store.tables import Artifact, BlobHold, Bundle, Checkpoint, InitialWeights, MediaPicture, ModelVersion
from torchyard.contract.errors import ConfigError, Conflict, NotFound, Unavailable
from torchyard.host.recordfiles import sync_folder

_PROGRAM = "torchyard-backup"
_LONGEST_ERROR = 2000
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files of a SQLite database. SQLite replays the contents of existing ones."""

_FUNCTIONS = text(
    "SELECT CAST(CAST(oid AS regprocedure) AS text) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
)
"""Selects the functions of the schema. PostgreSQL keeps them when the tables that use them are dropped."""


@dataclass(frozen=True)
class Snapshot:
    """What the database contains at one moment."""

    revision: str
    rows: dict[str, int]
    blobs: dict[str, int]
    """Sizes of all blobs that the database refers to, by sha256."""
    service: Known | None
    """None if the database knows no folder of blobs yet."""


def kind(url: str) -> Literal["sqlite", "postgresql"]:
    """Returns the kind of database. Raises ConfigError."""
    with closing(Database(url, program=_PROGRAM)) as database:
        return cast(Literal["sqlite", "postgresql"], database.engine.dialect.name)


def dump(url: str, path: Path) -> Snapshot:
    """Writes the database to `path`, a new file, and returns its contents. Other writers do not wait.

    Raises NotFound, Unavailable, ConfigError (no client program) and OSError.
    """
    create_private(path).close()
    with closing(Database(url, program=_PROGRAM)) as database:
        if database.engine.dialect.name == "sqlite":
            written = _dump_sqlite(_file(database), path)
        else:
            written = _dump_postgresql(database, path)
    _sync(path)
    return written


@contextmanager
def all_held(url: str) -> Generator[Callable[[], None]]:
    """Has no blob be removed in the block, as `store.blobs.holding.all_held` does. Raises NotFound, too."""
    with closing(Database(url, program=_PROGRAM)) as database:
        if database.engine.dialect.name == "sqlite":
            _require_file(_file(database))
        with database.read() as session:
            removes = inspect(session.connection()).has_table(BlobHold.__tablename__)
        if not removes:  # no program of this version serves tables that are so old
            yield lambda: None
            return
        with holding.all_held(database) as go_on:
            yield go_on


def check_empty(url: str) -> None:
    """Raises Conflict if tables or remaining files of a SQLite database exist; raises Unavailable, too."""
    with closing(Database(url, program=_PROGRAM)) as database:
        if database.engine.dialect.name == "sqlite":
            there = [str(path) for path in _files(database) if os.path.lexists(path)]
            if there:
                raise Conflict(f"database exists already, or remaining files of one: {', '.join(there)}")
            return
        with database.read() as session:
            tables = inspect(session.connection()).get_table_names()
    if tables:
        raise Conflict(f"the database is not empty: it has the tables {', '.join(sorted(tables))}")


def load(url: str, path: Path, *, revision: str, rows: Mapping[str, int]) -> None:
    """Loads the dump at `path` into the empty database, which then has `rows` rows in each table, or leaves it empty.

    Raises ConfigError if the rows differ, and what `dump` raises.
    """
    with closing(Database(url, program=_PROGRAM)) as database, _emptied_on_failure(database):
        if database.engine.dialect.name == "sqlite":
            _copy(path, _file(database))
        else:
            # Without --no-owner, the server would need the same users.
            options = ("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error")
            _client("pg_restore", database, *options, str(path))
        with database.read() as session:
            snapshot = _read_snapshot(session)
        if (snapshot.revision, snapshot.rows) != (revision, rows):
            raise ConfigError("the restored database differs from the manifest: everything restored was removed")


@contextmanager
def _emptied_on_failure(database: Database) -> Generator[None]:
    before = set[str]() if database.engine.dialect.name == "sqlite" else _functions(database)
    try:
        yield
    except BaseException:
        if database.engine.dialect.name == "sqlite":
            database.close()
            for path in _files(database):
                path.unlink(missing_ok=True)
            raise
        with suppress(DBAPIError, Unavailable):  # a server that is away has rolled back
            tables = MetaData()
            tables.reflect(database.engine)
            tables.drop_all(database.engine)
            if functions := _functions(database) - before:
                with database.engine.begin() as connection:
                    connection.execute(text(f"DROP FUNCTION {', '.join(sorted(functions))}"))
        raise


def _functions(database: Database) -> set[str]:
    with database.read() as session:
        return {*session.scalars(_FUNCTIONS)}


def _dump_sqlite(source: Path, path: Path) -> Snapshot:
    _require_file(source)
    try:
        with (
            closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True, timeout=10)) as live,
            closing(sqlite3.connect(path)) as copy,
        ):
            live.backup(copy)  # in one step, so that it is one snapshot
    except sqlite3.Error as error:
        raise Unavailable(f"the database cannot be copied: {error}") from error
    try:
        with closing(Database(f"sqlite:///{path}")) as copied, copied.read() as session:
            problems = session.scalars(text("PRAGMA quick_check(1)")).all()
            if problems == ["ok"]:
                return _read_snapshot(session)
    except DatabaseError as error:
        problems = [str(error.orig)]
    raise Unavailable(f"the database itself is damaged: {problems[0]}")


def _dump_postgresql(database: Database, path: Path) -> Snapshot:
    with database.read() as session:
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            session.execute(text(f"SET LOCAL {limit} = 0"))
        # pg_dump reads the same snapshot as the counts and the list here.
        exported = session.scalars(text("SELECT pg_export_snapshot()")).one()
        snapshot = _read_snapshot(session)
        options = ("--format=custom", "--no-owner", "--no-privileges", f"--snapshot={exported}", f"--file={path}")
        _client("pg_dump", database, *options)
    return snapshot


def _read_snapshot(session: Session) -> Snapshot:
    revision = revision_of(session.connection())
    if revision is None:
        raise Unavailable("the database has no tables yet")
    if revision < OLDEST:
        raise ConfigError(too_old(f"the database's tables are at revision {revision}"))
    # The names are those of the service's own tables.
    tables = sorted(inspect(session.connection()).get_table_names())
    rows = {table: session.scalars(text(f'SELECT count(*) FROM "{table}"')).one() for table in tables}  # noqa: S608
    blobs: dict[str, int] = {}
    for table in (Checkpoint, InitialWeights, ModelVersion):
        listed = session.scalars(select(table.files).execution_options(yield_per=1000))
        blobs |= {str(file["sha256"]): int(file["size"]) for files in listed for file in files}
    for table in (Bundle, Artifact, MediaPicture):
        blobs |= {row.sha256: row.size for row in session.execute(select(table.sha256, table.size))}
    service = service_identity.read(session)
    return Snapshot(revision, rows, blobs, service if service is not None and service.blobs is not None else None)


def _client(program: str, database: Database, *options: str) -> None:
    """Runs one of PostgreSQL's programs. The password is in its environment, because others can read command lines."""
    binary = shutil.which(program)
    if binary is None:
        raise ConfigError(
            f"{program} is not in PATH: install PostgreSQL's client programs, of the server's version or later"
            " (Debian and Ubuntu: apt install postgresql-client)"
        )
    arguments, environment = _connection(database)
    done = subprocess.run(
        [binary, "--no-password", *arguments, *options],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"{program} failed: {done.stderr.strip()[:_LONGEST_ERROR]}")


def _connection(database: Database) -> tuple[list[str], dict[str, str]]:
    from psycopg import conninfo

    engine = database.engine
    settings = engine.dialect.create_connect_args(engine.url)[1]
    settings = {key: value for key, value in settings.items() if isinstance(value, (str, int))}
    if "sslpassword" in settings:
        raise ConfigError("sslpassword in the database's address cannot be hidden from others: use a key without one")
    password = settings.pop("password", None)
    address = conninfo.make_conninfo("", **{"application_name": _PROGRAM, **settings})
    return [f"--dbname={address}"], {} if password is None else {"PGPASSWORD": str(password)}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with source.open("rb") as file, create_private(temporary) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _files(database: Database) -> list[Path]:
    file = _file(database)
    return [file.with_name(file.name + suffix) for suffix in _SQLITE_SUFFIXES]


def _require_file(source: Path) -> None:
    if not source.exists():
        raise NotFound(f"there is no database: {source} (which data directory is it?)")


def _file(database: Database) -> Path:
    return Path(str(database.engine.url.database)).absolute()
