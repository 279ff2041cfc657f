"""A search of jobs finds the same on each database, and on PostgreSQL reads few rows when it finds few."""

from typing import Any

import pytest
from sqlalchemy import event, text

from store.jobs import listing
from store.team.callers import SERVICE
from tests.rows import each_row
from tests.store.fixture import StoreFixture
from torchyard.contract.jobs.filters import JobQuery

MANY = 1000
LABELS = ("Straße 7", "100% done", "a_b", "axb", "日本語の実験", "back\\slash", "it's 'quoted'", "{braces},comma")


@pytest.fixture
def labelled(db: StoreFixture) -> StoreFixture:
    """Has a job with each label."""
    for value in LABELS:
        db.submit(labels={"note": value})
    return db


@each_row(
    ("q", "found"),
    [
        ("STRASSE", {"Straße 7"}),
        ("ße", {"Straße 7"}),
        ("0% d", {"100% done"}),
        ("a_b", {"a_b"}),
        ("本語の", {"日本語の実験"}),
        ("語", {"日本語の実験"}),
        ("k\\s", {"back\\slash"}),
        ("'QUOTED'", {"it's 'quoted'"}),
        ("{braces},", {"{braces},comma"}),
        ("xyzzy", set()),
        ("abab", set()),
    ],
)
def test_a_search_finds_what_contains_its_text(labelled: StoreFixture, q: str, found: set[str]) -> None:
    page = labelled.read(lambda session: listing.list_page(session, JobQuery(q=q), caller=SERVICE, limit=50))
    assert {job.labels["note"] for job in page.items} == found


def test_a_search_follows_a_job_whose_name_changes(db: StoreFixture) -> None:
    job_id = db.submit(name="resnet")
    db.write(lambda session: session.execute(text("UPDATE jobs SET name = 'unet', search_text = 'unet'")))
    for q, found in {"resnet": [], "unet": [job_id]}.items():
        page = db.read(lambda session, q=q: listing.list_page(session, JobQuery(q=q), caller=SERVICE, limit=50))
        assert [job.id for job in page.items] == found


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_search_that_finds_nothing_reads_no_job(db: StoreFixture) -> None:
    """SQLite reads the index of all that lists are filtered and sorted by."""
    db.submit_many(MANY)
    db.write(lambda session: session.execute(text("ANALYZE")))
    for sort in ("created", "name", "-finished"):
        assert "ix_jobs_searched" in _plan(db, JobQuery(q="nothing"), sort=sort), sort


def _plan(db: StoreFixture, where: JobQuery, *, sort: Any) -> str:
    executed: list[tuple[str, Any]] = []

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *others: Any) -> None:
        if statement.startswith("SELECT jobs.id \n"):
            executed.append((statement, parameters))

    def plan(session: Any) -> str:
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", note)
        listing.list_page(session, where, caller=SERVICE, limit=50, sort=sort)
        event.remove(connection, "before_cursor_execute", note)
        statement, parameters = executed[0]
        return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters))

    return db.read(plan)
