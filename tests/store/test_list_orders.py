"""Pages of long lists: each order is that of an index, wherever the page begins."""

from typing import Any, get_args

import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import Session

from store.jobs import listing
from store.jobs.facts import ListCursor, sort_key
from store.team.callers import SERVICE
from tests.store.fixture import StoreFixture
from torchyard.contract.jobs.filters import JobQuery, JobSort

MANY = 500
_EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}
_SORTS = {"sqlite": "TEMP B-TREE", "postgresql": "Sort"}
_OF_TIMES = {"started", "finished"}
"""SQLite sorts these, which it reads from the index of all that lists are filtered and sorted by."""


def test_no_page_sorts_all_jobs(db: StoreFixture) -> None:
    db.submit_many(MANY)
    dialect = db.database.engine.dialect.name
    db.write(lambda session: session.execute(text("ANALYZE")))
    for sort in get_args(JobSort):
        if dialect == "sqlite" and sort.removeprefix("-") in _OF_TIMES:
            continue
        plans = db.read(lambda session, sort=sort: _plans(session, sort))
        assert len(plans) >= 2, sort
        assert [plan for plan in plans if _SORTS[dialect] in plan] == [], sort


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_to_leave_archived_jobs_out_reads_no_row(db: StoreFixture) -> None:
    """PostgreSQL reads the rows, which are small: it keeps large values outside of them."""
    db.submit_many(MANY)
    db.write(lambda session: session.execute(text("ANALYZE")))
    plans = db.read(lambda session: _plans(session, "created"))
    assert [plan for plan in plans if "COVERING INDEX ix_jobs_listed" not in plan] == []


def test_a_page_that_begins_among_equal_jobs_goes_on_with_the_others(db: StoreFixture) -> None:
    for name in "ab":
        db.submit_many(3, owner=name, name=name, priority=ord(name))
    for sort in get_args(JobSort):
        whole = _page(db, sort, limit=6)
        for place in (2, 3, 4):
            rest = _page(db, sort, limit=6, after=whole[place - 1])
            assert [job.id for job in rest] == [job.id for job in whole[place:]], sort


def _page(db: StoreFixture, sort: JobSort, *, limit: int, after: Any = None) -> list[Any]:
    cursor = None if after is None else ListCursor(sort_key(after, sort), after.id)
    return [
        *db.read(
            lambda session: listing.list_page(session, JobQuery(), caller=SERVICE, limit=limit, sort=sort, after=cursor)
        ).items
    ]


def _plans(session: Session, sort: JobSort) -> list[str]:
    """Returns how the database finds the ids of a first page, and those of the parts of the next."""
    executed: list[tuple[str, Any]] = []
    connection = session.connection()

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *others: Any) -> None:
        if statement.startswith("SELECT jobs.id \n"):
            executed.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    first = listing.list_page(session, JobQuery(), caller=SERVICE, limit=50, sort=sort).items
    after = ListCursor(sort_key(first[-1], sort), first[-1].id)
    listing.list_page(session, JobQuery(), caller=SERVICE, limit=50, sort=sort, after=after)
    event.remove(connection, "before_cursor_execute", note)
    explain = _EXPLAIN[session.get_bind().dialect.name]
    rows = [connection.exec_driver_sql(explain + statement, parameters).all() for statement, parameters in executed]
    return ["\n".join(str(row[-1]) for row in plan) for plan in rows]
