"""Reaches in the rows: who may open them, what their workers are told, and how they end."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from store.attempts import read
from store.attempts.facts import Claim
from store.db.database import Database, in_us, now_us
from store.jobs import deletion
from store.reaches import reaches
from store.reaches.facts import OpenedReach, ReachOrder
from store.tables import Reach
from store.team import login, tokens, users
from store.team.callers import Caller
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import Conflict, Forbidden, NotFound
from torchyard.contract.reach.orders import Order, Terminal
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role, Scope

ADMIN = Caller("admin", Role.ADMIN)
SHELL = Order(kind="program", terminal=Terminal())


@pytest.fixture
def db(database: Database) -> StoreFixture:
    return StoreFixture(database)


@pytest.fixture
def ada(db: StoreFixture) -> Caller:
    return caller_of(db, "ada")


@pytest.fixture
def claim(db: StoreFixture, ada: Caller) -> Claim:
    return db.running(db.submit(), db.worker())


def caller_of(db: StoreFixture, name: str, role: Role = Role.MEMBER) -> Caller:
    """Adds a user, and returns who uses a token of theirs."""

    def add(session: Session) -> Caller:
        users.add(session, name, role=role, caller=ADMIN)
        token, _ = tokens.make(session, name, name="t", scopes=[Scope.JOBS_EXEC], lifetime=None, caller=ADMIN)
        return Caller(name, role, token_id=token.id)

    return db.write(add)


def open_one(db: StoreFixture, claim: Claim, caller: Caller, order: Order = SHELL) -> OpenedReach:
    return db.write(lambda session: reaches.open_reach(session, claim.job_id, order, caller=caller))


def orders(db: StoreFixture, claim: Claim) -> list[ReachOrder]:
    return [*db.read(lambda session: read.read_wanted(session, claim)).reaches]


def start(db: StoreFixture, reach: OpenedReach) -> None:
    """Does what the worker's coming to the first meeting does."""
    change = update(Reach).where(Reach.id == reach.id).values(has_started=True, secret=None)
    db.write(lambda session: session.execute(change))


def test_the_worker_is_told_to_start_then_to_join_then_to_end(db: StoreFixture, claim: Claim, ada: Caller) -> None:
    assert orders(db, claim) == []
    opened = open_one(db, claim, ada, Order(kind="program", argv=["nvidia-smi", "-L"]))
    (told,) = orders(db, claim)
    assert told == ReachOrder(opened.id, "start", 1, opened.secret, Order(kind="program", argv=["nvidia-smi", "-L"]))
    start(db, opened)
    assert orders(db, claim) == []
    again = db.write(lambda session: reaches.meet_again(session, opened.id, caller=ada))
    assert (again.meeting, again.secret != opened.secret) == (2, True)
    assert orders(db, claim) == [ReachOrder(opened.id, "join", 2, again.secret)]
    db.write(lambda session: reaches.end(session, opened.id, caller=ada))
    assert orders(db, claim) == [ReachOrder(opened.id, "end", 2)]
    with pytest.raises(NotFound):
        db.write(lambda session: reaches.meet_again(session, opened.id, caller=ada))


def test_a_secret_stands_in_no_record_that_is_printed(db: StoreFixture, claim: Claim, ada: Caller) -> None:
    opened = open_one(db, claim, ada)
    assert opened.secret not in f"{opened!r} {orders(db, claim)!r}"


def test_a_reach_that_never_started_ends_without_an_order(db: StoreFixture, claim: Claim, ada: Caller) -> None:
    opened = open_one(db, claim, ada)
    db.write(lambda session: reaches.end(session, opened.id, caller=ada))
    assert orders(db, claim) == []


@pytest.mark.parametrize("what", ["token", "user", "role", "session"])
def test_the_worker_is_told_to_end_what_its_user_may_do_no_more(
    db: StoreFixture, claim: Claim, ada: Caller, what: str
) -> None:
    cookie = db.write(lambda session: login.open_session(session, ada.token_id or "", caller=ada, exec=True))
    asked = db.write(lambda session: reaches.open_reach(session, claim.job_id, SHELL, caller=ada, login=cookie.digest))
    start(db, asked)
    assert orders(db, claim) == []
    ends: dict[str, Callable[[Session], object]] = {
        "token": lambda session: tokens.revoke(session, ada.token_id or "", user=None, caller=ADMIN),
        "user": lambda session: users.change(session, "ada", disabled=True, caller=ADMIN),
        "role": lambda session: users.change(session, "ada", role=Role.OPERATOR, caller=ADMIN),
        "session": lambda session: login.close_session(session, cookie.digest, caller=ada),
    }
    db.write(ends[what])
    assert orders(db, claim) == [ReachOrder(asked.id, "end", 1)]


def test_only_the_owner_reaches_into_a_job_unless_operators_may(db: StoreFixture, claim: Claim, ada: Caller) -> None:
    operator, member = caller_of(db, "olga", Role.OPERATOR), caller_of(db, "bob")

    def attempt(caller: Caller, *, by_operators: bool) -> None:
        db.write(
            lambda session: reaches.open_reach(session, claim.job_id, SHELL, caller=caller, by_operators=by_operators)
        )

    for caller, error in ((operator, NotFound), (member, NotFound), (ADMIN, Forbidden)):
        with pytest.raises(error):
            attempt(caller, by_operators=False)
    for caller in (operator, ADMIN, ada):
        attempt(caller, by_operators=True)
    with pytest.raises(NotFound):
        attempt(member, by_operators=True)
    listed = {
        caller.name: db.read(lambda session, who=caller: [*reaches.list_open(session, claim.job_id, caller=who)])
        for caller in (ADMIN, ada)
    }
    assert [view.user for view in listed["ada"]] == ["olga", "admin", "ada"]
    assert listed["admin"] == listed["ada"]
    (of_olga, *_) = listed["ada"]
    with pytest.raises(NotFound):
        db.write(lambda session: reaches.end(session, of_olga.id, caller=member))
    db.write(lambda session: reaches.end(session, of_olga.id, caller=ada))


def test_a_job_that_does_not_run_and_a_rank_that_it_has_not_are_refused(db: StoreFixture, ada: Caller) -> None:
    job_id = db.submit()
    with pytest.raises(Conflict, match="is queued: only running jobs"):
        db.write(lambda session: reaches.open_reach(session, job_id, SHELL, caller=ada))
    claim = db.running(job_id, db.worker())
    with pytest.raises(Conflict, match="has no rank 7"):
        open_one(db, claim, ada, Order(kind="program", argv=["true"], rank=7))


def test_there_is_room_for_so_many_and_what_is_over_counts_no_more(
    db: StoreFixture, claim: Claim, ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaches, "MOST_OF_JOB", 2)
    first = open_one(db, claim, ada)
    open_one(db, claim, ada)
    with pytest.raises(Conflict, match="has 2 open connections to jobs; the maximum is 2"):
        open_one(db, claim, ada)
    old = update(Reach).where(Reach.id == first.id).values(until=now_us() - in_us(timedelta(seconds=1)))
    db.write(lambda session: session.execute(old))
    open_one(db, claim, ada)
    assert [order.id == first.id for order in orders(db, claim)] == [False, False]


def test_the_rows_go_with_the_attempt_and_with_the_job(db: StoreFixture, claim: Claim, ada: Caller) -> None:
    opened = open_one(db, claim, ada)
    db.end(claim, EndReason.CANCELLED)
    with pytest.raises(NotFound):
        db.write(lambda session: reaches.end(session, opened.id, caller=ada))
    assert db.read(lambda session: session.get(Reach, opened.id)) is None
    db.write(lambda session: deletion.delete_job(session, claim.job_id))
