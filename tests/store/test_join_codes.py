"""Codes by which machines join, where several send one at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from store.tables import JoinCode
from store.team import join_codes
from store.team.callers import SERVICE
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import NotAuthorized


def test_of_many_who_send_a_code_at_once_one_is_let_in(db: StoreFixture) -> None:
    code = db.write(lambda session: join_codes.make(session, "worker", "box-b", caller=SERVICE))

    def take(number: int) -> str:
        try:
            return db.write(lambda session: join_codes.take(session, code.secret, key=f"machine {number}")).name
        except NotAuthorized as error:
            return error.message.partition(":")[0]

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(take, range(4))) == ["box-b", *["the code was used"] * 3]
    assert code.secret not in str(db.everything())


def test_a_machine_whose_answer_was_lost_takes_its_code_again_until_it_is_late(db: StoreFixture) -> None:
    code = db.write(lambda session: join_codes.make(session, "worker", "box-b", caller=SERVICE))

    def take(key: str) -> str | None:
        return db.write(lambda session: join_codes.take(session, code.secret, key=key)).given

    assert take("own") is None
    db.write(lambda session: join_codes.note_given(session, code.secret, "wrk_1"))
    assert take("own") == "wrk_1"
    with pytest.raises(NotAuthorized, match="was used"):
        take("other")
    db.write(lambda session: session.execute(update(JoinCode).values(expires_at=0)))
    with pytest.raises(NotAuthorized):
        take("own")
