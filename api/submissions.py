"""Commits submissions and retries of several clients together. Call it in the event loop."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from store.jobs.shared_commits import Outcome, submit_together
from store.jobs.submission import Retry, Submission, Submitted
from store.jobs.submit import submit_alone
from store.store import Store
from torchyard.contract.errors import Unavailable

THREADS = 2
"""Transactions at once: one executes its statements while the other one waits for its commit."""
MOST = 50
"""The most submissions of a transaction. PostgreSQL keeps 64 savepoints of one at hand."""

_Waiting = tuple[Submission | Retry, asyncio.Future[Submitted | None]]


class Submissions:
    """Who comes while both threads are busy shares the next transaction. Nobody waits for others to come."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="submissions")
        self._waiting: deque[_Waiting] = deque()
        self._busy = 0

    @property
    def waiting(self) -> int:
        """How many are in no transaction so far."""
        return len(self._waiting)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def submit(self, wanted: Submission | Retry) -> Submitted:
        """Returns when the job is committed. Raises what `store.jobs.submit.submit_alone` does."""
        committed = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, committed))
        self._begin()
        submitted = await committed
        if submitted is None:  # it may wait for another transaction: in a thread of its own, as others must not
            return await run_in_threadpool(submit_alone, self._store, wanted)
        return submitted

    def _begin(self) -> None:
        """Gives the free threads to those who wait."""
        while self._waiting and self._busy < THREADS:
            some = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            asked = [waiting for waiting in some if not waiting[1].cancelled()]
            if asked:
                self._busy += 1
                self._start(asked)

    def _start(self, asked: Sequence[_Waiting]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            outcomes = _outcomes(self._store, [wanted for wanted, _ in asked])
            with suppress(RuntimeError):  # the loop is closed: the service has stopped
                loop.call_soon_threadsafe(self._end, asked, outcomes)

        self._threads.submit(run)

    def _end(self, asked: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
        self._busy -= 1
        self._begin()
        for (_, committed), outcome in zip(asked, outcomes, strict=True):
            if committed.done():  # its client has left
                continue
            if isinstance(outcome, Exception):
                committed.set_exception(outcome)
            else:
                committed.set_result(outcome)


def _outcomes(store: Store, wanted: Sequence[Submission | Retry]) -> Sequence[Outcome]:
    """Returns the outcome of each. If the transaction was refused, none of them is stored, and each gets the error."""
    try:
        return submit_together(store, wanted)
    except Unavailable as error:
        return [Unavailable(error.message) for _ in wanted]
    except Exception as error:  # noqa: BLE001 - each of them answers 500
        return [error for _ in wanted]
