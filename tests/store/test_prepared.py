"""Statements that go to the driver as they are: what they return and raise is what a session's own do."""

import pytest
from sqlalchemy import bindparam, cast, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from store.db.documents import Parsed
from store.db.prepared import Prepared, among, texts
from store.jobs import new_jobs
from store.jobs.submission import Submission
from store.tables import Base
from store.team.callers import SERVICE
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import Unavailable

EVENTS, USERS = Base.metadata.tables["job_events"], Base.metadata.tables["users"]
NEW = Prepared(insert(USERS).inline(), columns=("name", "role"))
NAMED = Prepared(select(USERS.c.name, USERS.c.role).where(among(USERS.c.name, "names")).order_by(USERS.c.name))


def named(db: StoreFixture, *names: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in db.read(lambda session: NAMED.read(session, {"names": texts(names)}))]


@pytest.mark.parametrize("names", [[], ["ada"], ["ada", "bob", "c\"\\'d", "é"]])
def test_one_statement_takes_any_number_of_texts(db: StoreFixture, names: list[str]) -> None:
    rows = [{"name": name, "role": "member"} for name in [*names, "other"]]
    db.write(lambda session: NEW.write(session, rows))
    assert named(db, *names) == [(name, "member") for name in sorted(names)]


def test_rows_have_their_columns_by_name_and_json_that_was_cast_to_text_is_parsed(db: StoreFixture) -> None:
    columns = (
        USERS.c.name,
        cast(bindparam("stored"), Parsed).label("found"),
        cast(bindparam("none"), Parsed).label("no"),
    )
    prepared = Prepared(select(*columns).where(among(USERS.c.name, "names")))
    db.write(lambda session: NEW.write(session, [{"name": name, "role": "member"} for name in ("ada", "bob")]))
    values = {"names": texts(["ada"]), "stored": '{"a": [1, null]}', "none": None}
    (row,) = db.read(lambda session: prepared.rows(session, values))
    assert (row.name, row.found, row.no) == ("ada", {"a": [1, None]}, None)
    assert db.read(lambda session: prepared.rows(session, {**values, "names": texts(["eve"])})) == []


def test_columns_that_are_left_out_get_their_defaults(db: StoreFixture) -> None:
    db.write(lambda session: NEW.write(session, [{"name": "ada", "role": "member"}]))
    created = db.read(
        lambda session: session.execute(select(USERS.c.created_at).where(USERS.c.name == "ada")).scalar_one()
    )
    assert created > 0


def test_what_the_database_refuses_is_undone_and_raised_as_by_a_session(db: StoreFixture) -> None:
    twice = [{"name": "ada", "role": "member"}] * 2
    with pytest.raises(IntegrityError):
        db.write(lambda session: NEW.write(session, twice))
    assert named(db, "ada") == []


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_connection_that_the_server_closed_is_unavailable_and_replaced(db: StoreFixture) -> None:
    with pytest.raises(Unavailable), db.database.write() as session:
        pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with db.database.write() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
        NAMED.read(session, {"names": texts(["ada"])})
    assert named(db, "ada") == []


def test_a_value_that_the_driver_refuses_is_no_outage(db: StoreFixture) -> None:
    prepared = Prepared(select(bindparam("value")))
    with pytest.raises((DBAPIError, TypeError)):
        db.read(lambda session: prepared.read(session, {"value": object()}))


def test_many_rows_are_stored_as_each_by_itself_is(db: StoreFixture) -> None:
    new = Prepared(insert(EVENTS).inline(), columns=("job_id", "seq", "time", "type", "attempt", "data"))
    job_id, other = db.submit(), db.submit()
    rows = [
        {"seq": 2, "time": 2**62, "type": "message", "attempt": None, "data": '{"text": "1"}'},
        {"seq": 3, "time": 0, "type": "é\"'\\{},%s", "attempt": 7, "data": '[1.5, "é\\n", null, "{}"]'},
    ]
    db.write(lambda session: new.write(session, [{**row, "job_id": job_id} for row in rows]))
    for row in rows:
        db.write(lambda session, row=row: new.write(session, [{**row, "job_id": other}]))
    stored = select(EVENTS).where(EVENTS.c.seq > 1).order_by(EVENTS.c.seq)
    many, single = (
        db.read(lambda session, own=own: session.execute(stored.where(EVENTS.c.job_id == own)).mappings().all())
        for own in (job_id, other)
    )
    assert [{**row, "job_id": other} for row in many] == [dict(row) for row in single]
    assert [(row["time"], row["attempt"], row["data"]) for row in many] == [
        (2**62, None, {"text": "1"}),
        (0, 7, [1.5, "é\n", None, "{}"]),
    ]


def test_many_rows_count_as_many_jobs(db: StoreFixture) -> None:
    with db.database.write() as session:
        new_jobs.insert_all(session, [Submission(db.spec(), SERVICE, "private")] * 3)
    counted = db.read(lambda session: session.execute(text("SELECT sum(jobs) FROM job_counts")).scalar_one())
    assert counted == 3


def test_texts_are_looked_up_by_the_index_of_their_columns(db: StoreFixture) -> None:
    series = Base.metadata.tables["series"].c
    compared = select(series.id).where(among(series.job_id, "jobs"), among(series.key, "keys"))
    values = {"jobs": texts(["a"]), "keys": texts(["b"])}

    def plan(session: Session) -> str:
        dialect = session.get_bind().dialect
        if dialect.name == "postgresql":
            session.execute(text("SET LOCAL enable_seqscan = off"))  # the table is empty
        explained = f"EXPLAIN {'QUERY PLAN ' if dialect.name == 'sqlite' else ''}{compared.compile(dialect=dialect)}"
        cursor = session.connection().connection.cursor()
        cursor.execute(explained, tuple(values.values()) if dialect.name == "sqlite" else values)
        return str(cursor.fetchall())

    found = db.read(plan)
    assert "job_id=? AND key=?" in found or "Index Cond: (((job_id)::text = ANY" in found, found
