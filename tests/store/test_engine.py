"""The database's address, and the timeouts of a PostgreSQL connection."""

from collections.abc import Callable, Generator
from contextlib import closing
import threading
import traceback
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from store.db.database import Database
from tests.approved import Approved
from tests.databases import PostgreSQLDatabases
from tests.e2e.service import until
from tests.postgresql import PostgreSQLServer, postgresql_server
from tests.store.fixture import StoreFixture, run_together
from torchyard.contract.errors import ConfigError, Unavailable


@pytest.fixture
def url(postgresql: PostgreSQLDatabases) -> Generator[str]:
    with postgresql.migrated() as url:
        yield url


@pytest.fixture
def own_server() -> Generator[PostgreSQLServer]:
    """A server that the test may stop."""
    with postgresql_server() as server:
        yield server


def answer(session: Session, statement: str) -> Any:
    return session.execute(text(statement)).scalar_one()


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        pytest.param("", id="empty"),
        "postgresql://ada:s3cret@box:port/db",
        "mysql://ada:s3cret@box/db",
        "postgresql+psycopg2://ada:s3cret@box/db",
        "postgresql://ada:s3@cret@box/db",
        "postgresql://ada:s3cret@box/db?colour=green",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_an_invalid_address_is_refused_without_quoting_its_password(address: str, approved: Approved) -> None:
    with pytest.raises(ConfigError) as caught:
        Database(address)
    assert caught.value.message == approved.of_row("message")
    assert "cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_driver_name_is_optional(url: str, scheme: str) -> None:
    address = scheme + url.removeprefix("postgresql")
    with closing(Database(address)) as database, database.read() as session:
        assert answer(session, "SELECT 1") == 1


def test_a_read_only_server_is_unavailable(url: str) -> None:
    address = f"{url}{'&' if '?' in url else '?'}options=-c%20default_transaction_read_only%3Don"
    with (
        closing(Database(address)) as database,
        pytest.raises(Unavailable, match="read-only"),
        database.write() as session,
    ):
        session.execute(text("DELETE FROM garbage"))


def test_an_unreachable_server_is_reported_without_the_password() -> None:
    with closing(Database("postgresql://ada:s3cret@127.0.0.1:1/torchyard")) as database:
        with pytest.raises(Unavailable) as caught, database.read() as session:
            answer(session, "SELECT 1")
        assert "s3cret" not in repr(database.engine)
    assert "port 1 failed" in caught.value.message
    assert "\n" not in caught.value.message
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_every_wait_has_a_timeout_and_connections_have_application_names(url: str) -> None:
    with closing(Database(url, program="torchyard-api")) as database, database.read() as session:
        shown = {
            name: answer(session, f"SHOW {name}")
            for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")
        }
    assert shown == {
        "statement_timeout": "30s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "30s",
        "application_name": "torchyard-api",
    }


def test_settings_in_the_address_take_precedence(url: str) -> None:
    with closing(Database(f"{url}&application_name=mine&options=-c%20statement_timeout%3D50")) as database:
        with pytest.raises(Unavailable, match="statement timeout"), database.write() as session:
            answer(session, "SELECT pg_sleep(60)")
        with database.read() as session:
            assert answer(session, "SHOW application_name") == "mine"


def test_a_transaction_ended_by_the_idle_timeout_is_unavailable(url: str) -> None:
    with closing(Database(f"{url}&options=-c%20idle_in_transaction_session_timeout%3D50")) as database:
        with pytest.raises(Unavailable), database.write() as session, closing(Database(url)) as other:
            pid = answer(session, "SELECT pg_backend_pid()")
            gone = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = :pid)"
            until(lambda: _told(other, gone, pid=pid), what="the server ended the transaction")
            answer(session, "SELECT 1")
        with database.read() as session:
            assert answer(session, "SELECT 1") == 1


def test_missing_tables_are_unavailable(empty_url: str) -> None:
    with closing(Database(empty_url)) as database, pytest.raises(Unavailable, match="waiting_reasons"):
        StoreFixture(database).submit()


def test_of_two_transactions_in_a_deadlock_one_is_unavailable_and_the_other_commits(url: str) -> None:
    with closing(Database(url)) as database:
        db = StoreFixture(database)
        ids = [db.submit(), db.submit()]
        both_hold_one = threading.Barrier(2)

        def lock(first: str, second: str) -> Callable[[], str]:
            def run() -> str:
                with database.write() as session:
                    session.execute(text("UPDATE jobs SET priority = 7 WHERE id = :id"), {"id": first})
                    both_hold_one.wait()
                    session.execute(text("UPDATE jobs SET priority = 7 WHERE id = :id"), {"id": second})
                return "committed"

            return run

        results = run_together(lock(*ids), lock(*reversed(ids)))
        assert results.count("committed") == 1, results
        (lost,) = (result for result in results if result != "committed")
        assert isinstance(lost, Unavailable)
        assert "deadlock detected" in lost.message
        assert [db.job(job_id).priority for job_id in ids] == [7, 7]


def test_a_restart_of_the_server_fails_only_the_running_call(own_server: PostgreSQLServer) -> None:
    with closing(Database(own_server.url("postgres"), pool=4)) as database:
        all_connected = threading.Barrier(4)

        def connect() -> None:
            with database.read() as session:
                answer(session, "SELECT 1")
                all_connected.wait()

        assert run_together(*[connect] * 4) == [None] * 4
        with pytest.raises(Unavailable), database.write() as session:
            answer(session, "SELECT 1")
            own_server.stop()
            answer(session, "SELECT 1")
        with pytest.raises(Unavailable, match="does not answer"), database.read() as session:
            answer(session, "SELECT 1")
        own_server.start()
        for _ in range(8):
            with database.write() as session:
                assert answer(session, "SELECT 1") == 1


def _told(database: Database, statement: str, **values: Any) -> Any:
    with database.read() as session:
        return session.execute(text(statement), values).scalar_one()


def test_connections_that_the_server_closed_meanwhile_are_replaced(url: str) -> None:
    with closing(Database(url)) as database, closing(Database(url)) as other:
        for _ in range(3):  # it was used a moment ago, and is not asked
            with database.write() as session:
                pid = answer(session, "SELECT pg_backend_pid()")
            with other.write() as session:
                assert answer(session, f"SELECT pg_terminate_backend({pid}, 10000)")
            with database.write() as session:
                assert answer(session, "SELECT pg_backend_pid()") != pid


def test_a_connection_that_was_used_a_moment_ago_is_not_asked(url: str) -> None:
    with closing(Database(url)) as database, closing(Database(url)) as other:
        with database.write() as session:
            pid = answer(session, "SELECT pg_backend_pid()")
        with database.engine.connect():  # without a statement
            pass
        with other.read() as session:
            last = answer(session, f"SELECT query FROM pg_stat_activity WHERE pid = {pid}")
    assert last != "SELECT 1"
