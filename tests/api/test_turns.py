"""Who is next at the threads of reads."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
import threading

import pytest

from api.limits import turns
from api.limits.turns import THREADS, THREADS_PER_USER, Together, Turns
from tests.approved import Approved
from torchyard.contract.errors import TooManyRequests


class Work:
    """Parts that run until they are let go, each under a name."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()
        self._let_go = threading.Semaphore(0)

    def part(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self._lock:
                self.begun.append(name)
                self.running += 1
                self.most = max(self.most, self.running)
            self._let_go.acquire()
            with self._lock:
                self.running -= 1

        return run

    def begin(self, user: str, name: str) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.turns.begin(user, self.part(name)))

    def let_go(self, count: int = 1) -> None:
        self._let_go.release(count)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - a thread makes it true
                await asyncio.sleep(0)


def run(test: Callable[[Work], Awaitable[None]]) -> None:
    async def main() -> None:
        work = Work()
        try:
            await test(work)
        finally:
            work.let_go(1000)
            work.turns.close()

    asyncio.run(main())


def test_a_user_has_few_threads_and_leaves_one_to_others() -> None:
    async def test(work: Work) -> None:
        mine = [work.begin("ada", f"ada {number}") for number in range(20)]
        theirs = [work.begin("bob", f"bob {number}") for number in range(3)]
        await work.until(lambda: len(work.begun) == THREADS)
        assert work.begun[:3] == ["ada 0", "ada 1", "bob 0"]
        assert THREADS_PER_USER < THREADS
        work.let_go(23)
        await asyncio.gather(*mine, *theirs)
        assert work.most <= THREADS
        # The users take turns: the other one does not wait for all that came before.
        assert max(work.begun.index(f"bob {number}") for number in range(3)) < 10

    run(test)


def test_a_read_that_has_begun_goes_on_before_others_of_its_user() -> None:
    async def test(work: Work) -> None:
        first = [work.begin("ada", name) for name in ("a", "b", "c")]
        await work.until(lambda: len(work.begun) == 2)
        going_on = asyncio.ensure_future(work.turns.go_on("ada", work.part("a, second part")))
        await asyncio.sleep(0)
        work.let_go(4)
        await asyncio.gather(*first, going_on)
        assert work.begun == ["a", "b", "a, second part", "c"]

    run(test)


def test_who_leaves_the_line_gets_no_turn_and_a_busy_thread_is_not_given_away() -> None:
    async def test(work: Work) -> None:
        tasks = [work.begin("ada", name) for name in ("a", "b", "c", "d")]
        await work.until(lambda: len(work.begun) == 2)
        tasks[0].cancel()  # its thread is still busy
        tasks[2].cancel()
        await asyncio.gather(tasks[0], tasks[2], return_exceptions=True)
        assert work.begun == ["a", "b"]
        work.let_go(3)
        await asyncio.gather(tasks[1], tasks[3])
        assert work.begun == ["a", "b", "d"]

    run(test)


def test_a_line_that_is_too_long_or_too_slow_is_refused(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    async def refusal(call: Coroutine[None, None, None] | asyncio.Task[None]) -> TooManyRequests:
        with pytest.raises(TooManyRequests) as raised:
            await call
        return raised.value

    async def test(work: Work) -> None:
        monkeypatch.setattr(turns, "MOST_WAITING", 1)
        tasks = [work.begin("ada", name) for name in ("a", "b", "c")]
        await work.until(lambda: len(work.begun) == 2)
        error = await refusal(work.begin("ada", "d"))
        assert (error.status, error.retry_after) == (429, 2)
        assert error.message == approved("message")
        work.let_go()
        await work.until(lambda: len(work.begun) == 3)
        work.turns.patience_s = 0
        error = await refusal(work.begin("ada", "e"))
        assert "no turn within 0 s" in error.message
        assert error.retry_after == 2
        work.let_go(2)
        await asyncio.gather(*tasks)
        assert work.begun == ["a", "b", "c"]

    run(test)


def test_of_one_thread_users_have_a_part_each_in_turn() -> None:
    async def reads(turns: Turns, user: str, done: list[str]) -> None:
        part = turns.begin
        for _ in range(3):
            await part(user, lambda: done.append(user))
            part = turns.go_on

    async def main() -> None:
        turns, done, held = Turns(per_user=1, threads=1), list[str](), threading.Event()
        try:
            holder = asyncio.ensure_future(turns.begin("eve", held.wait))
            many = [asyncio.ensure_future(reads(turns, user, done)) for user in ["ada"] * 8 + ["bob"]]
            await asyncio.sleep(0)
            held.set()
            await asyncio.gather(holder, *many)
        finally:
            turns.close()
        assert len(done) == 27
        assert done[:9].count("bob") == 3, "eight reads of one user do not come before one of another"

    asyncio.run(main())


def test_a_user_has_one_part_at_a_time_in_turns_that_are_together() -> None:
    async def work(turns: Turns, user: str, name: str, done: list[str]) -> None:
        part = turns.begin
        for _ in range(3):
            await part(user, lambda: done.append(name))
            part = turns.go_on

    async def main() -> None:
        together, done, held = Together(), list[str](), threading.Event()
        lines = [Turns(together=together) for _ in range(3)]
        try:
            holder = asyncio.ensure_future(lines[0].begin("ada", held.wait))
            mine = [asyncio.ensure_future(work(line, "ada", f"ada {place}", done)) for place, line in enumerate(lines)]
            await asyncio.gather(*(work(line, "bob", "bob", done) for line in lines))
            assert done == ["bob"] * 9, "whoever has a part in one waits in all, and nobody else does"
            held.set()
            await asyncio.gather(holder, *mine)
        finally:
            for line in lines:
                line.close()
        assert Counter(done[9:12]) == Counter(["ada 0", "ada 1", "ada 2"]), "each of them comes to its turn"

    asyncio.run(main())


def test_what_comes_last_begins_when_nothing_else_of_its_user_goes_on() -> None:
    async def work(turns: Turns, name: str, done: list[str]) -> None:
        part = turns.begin
        for _ in range(3):
            await part("ada", lambda: done.append(name))
            part = turns.go_on

    async def main() -> None:
        together, done, held = Together(), list[str](), threading.Event()
        reads, large = Turns(together=together), Turns(together=together, threads=1, comes_last=True)
        try:
            holder = asyncio.ensure_future(large.begin("ada", held.wait))
            waiting = [
                asyncio.ensure_future(work(each, name, done)) for each, name in ((large, "large"), (reads, "read"))
            ]
            await asyncio.sleep(0)
            held.set()
            await asyncio.gather(holder, *waiting)
        finally:
            reads.close()
            large.close()
        assert done == ["read"] * 3 + ["large"] * 3

    asyncio.run(main())
