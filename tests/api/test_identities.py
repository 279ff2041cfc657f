"""Whose token it is is remembered for seconds, and forgotten at each change of who may do what."""

import asyncio
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from redis import Redis

from api.auth import identities as module
from api.auth.identities import Identities
from store.db.database import Database
from store.queue.announcing import Queue
from store.team import users
from store.team.callers import SERVICE
from store.team.facts import Identity
from tests.api.raw import wait_until
from tests.api.service import TOKEN, ApiFixture
from tests.servers import administered, redis_server
from tests.sessions import write
from tests.store.fixture import a_service, recorded_statements, store_on
from torchyard.contract.team.roles import Role

ADA = Identity("ada", Role.MEMBER, Role.MEMBER.scopes, "tok_1")


lasting = pytest.mark.usefixtures("for_ever")
"""Marks a test in which nothing is forgotten by time."""


@pytest.fixture
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LASTING_S", 1e6)


def asks(service: ApiFixture) -> bool:
    """Returns whether authenticating a request of the present user queries the database."""
    with recorded_statements(service.app.state.services.store.database) as statements:
        assert service.client.get("/v1/me").status_code == 200
    return bool(statements)


@contextmanager
def administrator(service: ApiFixture) -> Generator[None]:
    """Makes the requests of the block come from the administrator."""
    sent = service.client.headers["Authorization"]
    service.client.headers["Authorization"] = f"Bearer {TOKEN}"
    try:
        yield
    finally:
        service.client.headers["Authorization"] = sent


@lasting
def test_a_known_token_asks_the_database_nothing(service: ApiFixture) -> None:
    assert not asks(service)
    service.act_as("ada")
    assert asks(service)
    wait_until(lambda: not asks(service))
    assert service.get("/v1/me")["name"] == "ada"


@lasting
def test_a_token_that_is_revoked_while_it_is_remembered_is_refused_at_once(service: ApiFixture) -> None:
    service.act_as("ada")
    wait_until(lambda: not asks(service))
    with administrator(service):
        (token,) = service.get("/v1/tokens", user="ada")["data"]
        assert service.client.delete(f"/v1/tokens/{token['id']}").status_code == 204
    assert service.client.get("/v1/me").status_code == 401


@lasting
def test_a_changed_role_and_a_disabled_user_count_at_once(service: ApiFixture) -> None:
    service.act_as("ada")
    wait_until(lambda: not asks(service))
    with administrator(service):
        assert service.client.patch("/v1/users/ada", json={"role": "viewer"}).status_code == 200
    assert service.get("/v1/me")["role"] == "viewer"
    wait_until(lambda: not asks(service))
    with administrator(service):
        assert service.client.patch("/v1/users/ada", json={"disabled": True}).status_code == 200
    assert service.client.get("/v1/me").status_code == 401


@lasting
def test_a_change_by_another_program_is_announced(service: ApiFixture, database: Database, redis_url: str) -> None:
    service.act_as("ada")
    wait_until(lambda: not asks(service))
    with closing(Queue(redis_url, service=service.app.state.services.store.service)) as queue:
        write(store_on(database, queue=queue), users.change, "ada", disabled=True, caller=SERVICE)
    wait_until(lambda: service.client.get("/v1/me").status_code == 401)


@lasting
def test_nothing_is_remembered_while_announcements_cannot_be_heard(tmp_path: Path, database: Database) -> None:
    """Neither while the subscription is down, nor what was remembered before."""
    with redis_server(tmp_path) as url:
        service = ApiFixture(tmp_path, database, url)
        with service.client, closing(service.queue):
            service.act_as("ada")
            wait_until(lambda: not asks(service))
            _disconnect(administered(url))
            wait_until(lambda: asks(service))
            wait_until(lambda: not asks(service))
            administered(url).shutdown(nosave=True)
            wait_until(lambda: asks(service))
            assert all(asks(service) for _ in range(20))


def test_an_answer_that_a_change_has_overtaken_is_not_remembered(redis_url: str) -> None:
    async def remembered(*, overtaken: bool) -> bool:
        identities = await _subscribed(redis_url, Clock())
        read_at = identities.changes
        if overtaken:
            await asyncio.to_thread(identities.forget)
        identities.remember("a token", ADA, read_at=read_at)
        identities.close()
        return identities.find("a token") == ADA

    assert asyncio.run(remembered(overtaken=False))
    assert not asyncio.run(remembered(overtaken=True))


def test_a_token_is_forgotten_when_it_expires_and_after_some_seconds(redis_url: str) -> None:
    async def check() -> None:
        clock = Clock()
        identities = await _subscribed(redis_url, clock)
        soon = Identity("eve", Role.MEMBER, Role.MEMBER.scopes, "tok_2", left_us=2_000_000)
        identities.remember("a token", ADA, read_at=identities.changes)
        identities.remember("another", soon, read_at=identities.changes)
        clock.now += 1.9
        assert (identities.find("a token"), identities.find("another")) == (ADA, soon)
        clock.now += 0.2
        assert (identities.find("a token"), identities.find("another")) == (ADA, None)
        clock.now += 3.0
        assert identities.find("a token") is None
        identities.close()

    asyncio.run(check())


def test_what_is_remembered_is_bounded_and_after_the_end_nobody_listens(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST", 3)

    async def check() -> None:
        identities = await _subscribed(redis_url, Clock())
        tokens = [f"token {number}" for number in range(9)]
        for token in tokens:
            identities.remember(token, ADA, read_at=identities.changes)
        assert 0 < sum(identities.find(token) == ADA for token in tokens) <= 3
        (listener,) = asyncio.all_tasks() - {asyncio.current_task()}
        identities.close()
        async with asyncio.timeout(30):
            await asyncio.wait([listener])

    asyncio.run(check())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def _subscribed(redis_url: str, clock: Clock) -> Identities:
    identities = Identities(redis_url, service=a_service, clock=clock)
    async with asyncio.timeout(30):
        while identities.find("probe") is None:
            identities.remember("probe", ADA, read_at=identities.changes)
            await asyncio.sleep(0)
    return identities


def _disconnect(redis: Redis) -> None:
    """Ends all subscriptions."""
    with closing(redis):
        redis.client_kill_filter(_type="pubsub")


def test_the_subscription_ends_however_early_its_loop_does(redis_url: str) -> None:
    async def begin(steps: int) -> None:
        Identities(redis_url, service=a_service).find("a token")
        for _ in range(steps):
            await asyncio.sleep(0)

    for steps in range(40):
        asyncio.run(begin(steps))  # it cancels the listener, and returns when that has ended
