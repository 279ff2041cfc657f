"""Revision 0007 adds users beside the data of the version before."""

from contextlib import closing

from alembic import command
from sqlalchemy import select, text

from migrations.__main__ import configuration
from store.db.database import Database
from store.db.tables import Checkpoint, IdempotencyKey
from store.rows import access, quotas, users
from store.rows.access import BOOTSTRAP, SERVICE, Caller
from store.rows.idempotency import Answer, KeyedRequest, find_answer, store_answer
from tests.store.fixture import StoreFixture, checkpoint
from torchyard.contract.job import EndReason
from torchyard.contract.team import Resource, Role


def test_data_of_the_version_before_belongs_to_the_bootstrap_administrator(database_url: str) -> None:
    key = KeyedRequest(BOOTSTRAP, "nightly", "f")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        job_id = db.submit(owner=BOOTSTRAP)
        claim = db.running(job_id, db.worker())
        db.record(claim, seq=0, checkpoints=[checkpoint("step-1", step=1)])
        db.end(claim, EndReason.COMPLETED)
    command.downgrade(configuration(database_url), "0006")
    with closing(Database(database_url)) as database:
        old = {"owner": BOOTSTRAP, "key": "nightly", "job": job_id}
        with database.write() as session:
            session.execute(
                text(
                    "INSERT INTO idempotency_keys"
                    " (owner, key, fingerprint, status, location, answer, job_id, created_at)"
                    " VALUES (:owner, :key, 'f', 201, '', '{}', :job, 9000000000000000)"
                ),
                old,
            )
    command.upgrade(configuration(database_url), "head")
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        admin = db.read(lambda session: users.get(session, BOOTSTRAP))
        assert (admin.role, admin.disabled_at) == ("admin", None)
        assert db.job(job_id).visibility == "private"
        assert db.read(lambda session: access.get(session, job_id, SERVICE)).owner == BOOTSTRAP
        assert db.read(lambda session: quotas.usage(session, BOOTSTRAP))[Resource.STORED_BYTES] == 1
        assert db.read(lambda session: session.scalars(select(Checkpoint.size)).all()) == [1]
        answer = db.read(lambda session: find_answer(session, key))
        assert answer is not None
        assert answer.job_id == job_id
        assert not access.may_read(Caller("eve", Role.MEMBER), db.job(job_id))


def test_a_program_of_the_version_before_can_store_an_answer(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        db = StoreFixture(database)
        job_id = db.submit()
        db.write(lambda session: store_answer(session, KeyedRequest("ada", "k", "f"), Answer(job_id, 201, "")))
        assert db.read(lambda session: session.scalars(select(IdempotencyKey.answer)).all()) == [{}]
