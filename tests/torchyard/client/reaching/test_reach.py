"""The client's end of a reach against a real handler, behind a connection that is cut."""

import asyncio
from collections.abc import Callable, Iterator
import hashlib
import os

import pytest

from tests.torchyard.client.reaching.peer import Peer, peer
from torchyard.client.discovery import Server
from torchyard.client.reaching.meeting import open_meeting
from torchyard.client.reaching.reach import Ended, Reach
from torchyard.contract.errors import ServerError, ServerUnreachable, Unavailable
from torchyard.contract.reach.orders import Order, Target
from torchyard.contract.reach.views import OpenedReachView
from torchyard.host.channel import Closed

CAT = Order(kind="program", argv=["cat"])
MANY = 6 << 20


@pytest.fixture
def other() -> Iterator[Peer]:
    with peer() as other:
        yield other


def reach_into(other: Peer, order: Order, *, patience: float = 60, tell: Callable[[str], None] = print) -> Reach:
    server = Server(other.url, "token", "")

    first = OpenedReachView.model_validate(other.start(order))

    async def meet_again() -> OpenedReachView:
        if other.is_away:
            raise Unavailable("it is away")
        return OpenedReachView.model_validate(other.meet(first.id))

    return Reach(
        first,
        connect=lambda meeting: open_meeting(server, meeting),
        meet_again=meet_again,
        patience=patience,
        tell=tell,
    )


def test_all_bytes_come_once_and_in_order_although_the_connection_is_cut(other: Peer) -> None:
    content, told = os.urandom(MANY), list[str]()

    async def send_all() -> bytes:
        reach = reach_into(other, CAT, tell=told.append)
        channel = reach.channel(0)
        reach.channel(1)
        running = asyncio.create_task(reach.run())
        writing = asyncio.create_task(channel.write(content))
        back, cut_at = bytearray(), MANY // 4
        while len(back) < MANY:
            back += await channel.read()
            if len(back) >= cut_at:
                other.cut()
                cut_at += MANY // 4
        await writing
        channel.end()
        assert await channel.read() == b""
        assert await running == 0
        return bytes(back)

    assert hashlib.sha256(asyncio.run(send_all())).digest() == hashlib.sha256(content).digest()
    assert told.count("connected again") >= 2


def test_a_program_that_ends_while_the_service_is_away_tells_its_exit_code_afterwards(other: Peer) -> None:
    told = list[str]()

    async def run() -> int:
        def tell(line: str) -> None:
            told.append(line)
            if "lost" in line:
                asyncio.get_running_loop().call_soon(setattr, other, "is_away", False)

        reach = reach_into(other, Order(kind="program", argv=["sh", "-c", "echo; read a; exit 5"]), tell=tell)
        channel = reach.channel(0)
        reach.channel(1)
        running = asyncio.create_task(reach.run())
        assert await channel.read() == b"\n"
        await channel.write(b"a\n")
        other.is_away = True
        other.cut()
        return await running

    assert asyncio.run(run()) == 5


def test_a_service_that_stays_away_is_told_after_the_time(other: Peer) -> None:
    async def run() -> None:
        reach = reach_into(other, CAT, patience=0)
        channel = reach.channel(0)
        reach.channel(1)
        running = asyncio.create_task(reach.run())
        await channel.write(b"a")
        assert await channel.read() == b"a"
        other.is_away = True
        other.cut()
        with pytest.raises(Closed):
            await channel.read()
        await running

    with pytest.raises((ServerUnreachable, Unavailable)):
        asyncio.run(run())


def test_a_connection_that_comes_after_the_end_of_a_forward_is_closed(other: Peer) -> None:
    async def run() -> None:
        reach = reach_into(other, Order(kind="ports"))
        running = asyncio.create_task(reach.run())
        with pytest.raises(Closed, match="no process"):
            await reach.open(Target(port=1))
        await asyncio.to_thread(other.stop)
        with pytest.raises(Ended):
            await running
        with pytest.raises(Closed, match="ended"):
            await reach.open(Target(port=1))

    asyncio.run(run())


def test_what_answers_in_place_of_the_service_is_given_nothing(other: Peer) -> None:
    other.shows_secret = False
    with pytest.raises(ServerError, match="does not know the secret"):
        asyncio.run(reach_into(other, CAT).run())


def test_a_client_with_another_secret_is_refused(other: Peer) -> None:
    reach = reach_into(other, CAT)
    other.meet(reach.id)
    with pytest.raises(Exception, match="the proof is wrong"):
        asyncio.run(reach.run())


def test_a_program_that_cannot_be_started_is_an_error_that_says_why(other: Peer) -> None:
    with pytest.raises(Ended, match="x"):
        asyncio.run(reach_into(other, Order(kind="program", argv=["no-such-program"])).run())


def test_a_job_that_sends_nonsense_is_told_and_ends_nothing_else(other: Peer) -> None:
    other.nonsense = b"\xff" * 9
    with pytest.raises(ServerError, match="cannot be read"):
        asyncio.run(reach_into(other, CAT).run())
