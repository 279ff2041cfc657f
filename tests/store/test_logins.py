"""Failed logins are counted in the database, once for all processes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, update

from store.db.database import Database
from store.tables import AuditEntry, FailedLogins
from store.team import login
from store.team.callers import SERVICE
from tests.sessions import write
from tests.store.fixture import store_on
from torchyard.contract.errors import TooManyRequests

HOST = "192.0.2.7"


def fail(database: Database, address: str = HOST, most: int = 10) -> int:
    """Returns 0, or in how many seconds a login of the address may fail again."""
    try:
        with database.write() as session:
            login.count_failed(session, address, most=most, caller=SERVICE, audited=False)
    except TooManyRequests as refused:
        assert refused.retry_after is not None
        return refused.retry_after
    return 0


def test_as_many_as_the_limit_and_then_one_after_the_other(database: Database) -> None:
    assert [fail(database) for _ in range(10)] == [0] * 10
    assert 0 < fail(database) <= 6
    assert fail(database, "192.0.2.8") == 0
    with database.write() as session:
        session.execute(update(FailedLogins).values(forgotten_at=FailedLogins.forgotten_at - 6_000_000))
    assert fail(database) == 0
    assert fail(database) > 0


def test_what_is_over_is_deleted(database: Database) -> None:
    fail(database)
    with database.write() as session:
        session.execute(update(FailedLogins).values(forgotten_at=FailedLogins.forgotten_at - 60_000_000))
    fail(database, "192.0.2.8")
    with database.read() as session:
        assert session.scalars(select(FailedLogins.address)).all() == ["192.0.2.8"]


def test_of_many_at_once_the_limit_is_counted(database: Database) -> None:
    with ThreadPoolExecutor(16) as pool:
        counted = [*pool.map(fail, [database] * 32)]
    assert counted.count(0) == 10


def test_what_is_refused_is_in_no_audit(database: Database) -> None:
    store = store_on(database)
    for _ in range(2):
        write(store, login.count_failed, HOST, most=2, caller=SERVICE, audited=True)
    with pytest.raises(TooManyRequests) as refused:
        write(store, login.count_failed, HOST, most=2, caller=SERVICE, audited=True)
    assert 0 < (refused.value.retry_after or 0) <= 30
    assert f"try again in {refused.value.retry_after} s" in refused.value.message
    with database.read() as session:
        assert len(session.scalars(select(AuditEntry.action)).all()) == 2
