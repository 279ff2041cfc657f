"""Codes by which machines join, where several send one at once."""

from concurrent.futures import ThreadPoolExecutor

from store.team import join_codes
from store.team.callers import SERVICE
from tests.store.fixture import StoreFixture
from torchyard.contract.errors import NotAuthorized


def test_of_many_who_send_a_code_at_once_one_is_let_in(db: StoreFixture) -> None:
    code = db.write(lambda session: join_codes.make(session, "worker", "box-b", caller=SERVICE))

    def take(_: int) -> str:
        try:
            return db.write(lambda session: join_codes.take(session, code.secret)).name
        except NotAuthorized as error:
            return error.message.partition(":")[0]

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(take, range(4))) == ["box-b", *["the code was used"] * 3]
    assert code.secret not in str(db.everything())
