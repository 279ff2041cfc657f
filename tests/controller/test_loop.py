"""The loop of a controller: intervals, wake-ups, failures, and how it ends. With a real Redis and a real database."""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
import os
import signal
import threading

import pytest

from controller.loop import Controller
from store.announcement import Announcement
from store.db.database import Database
from store.queue.announcing import Queue
from tests.databases import SQLiteDatabases
from tests.store.fixture import store_on
from torchyard.contract.errors import Unavailable

HOURS_S = 36_000.0
"""An interval that no test sees the end of."""


class Does:
    """A duty that calls what the test gives it with the number of the run, from 1."""

    def __init__(self, act: Callable[[int], bool | None], *, interval_s: float = HOURS_S) -> None:
        self.interval_s = interval_s
        self.runs = 0
        self._act = act

    def run(self) -> bool:
        self.runs += 1
        return bool(self._act(self.runs))


class Served:
    """A controller in this thread. `end` is for an act of a duty, or for a signal handler."""

    def __init__(self, database: Database, queue: Queue | None = None) -> None:
        self._store = store_on(database, queue=queue)
        self._controller: Controller | None = None

    def end(self) -> None:
        assert self._controller is not None
        self._controller.stop()

    def serve(self, *duties: Does) -> list[int]:
        """Serves until `end`. Returns how often each duty has run."""
        self._controller = Controller(self._store, duties)
        self._controller.serve()
        return [duty.runs for duty in duties]


@pytest.fixture(scope="session")
def databases(sqlite: SQLiteDatabases) -> SQLiteDatabases:
    return sqlite


@pytest.fixture
def served(database: Database) -> Served:
    """One without a Redis."""
    return Served(database)


@contextmanager
def waking(queue: Queue) -> Generator[None]:
    """Wakes the controllers again and again."""
    done = threading.Event()

    def wake() -> None:
        while not done.wait(0.01):
            queue.announce(Announcement(wakes_controller=True))

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def ended_by_a_signal(served: Served) -> Generator[None]:
    def end(*_: object) -> None:
        served.end()

    before = signal.signal(signal.SIGUSR1, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_duty_with_more_to_do_goes_on_at_once_and_holds_up_no_other(served: Served) -> None:
    other = Does(lambda number: served.end() if number == 3 else None, interval_s=0.0)
    assert served.serve(Does(lambda _: True), other) == [3, 3]


def test_a_duty_comes_again_after_its_interval(database: Database, queue: Queue) -> None:
    served = Served(database, queue)
    often = Does(lambda number: served.end() if number == 3 else None, interval_s=0.01)
    assert served.serve(often) == [3]


def test_a_wake_up_has_all_duties_done(database: Database, queue: Queue) -> None:
    served = Served(database, queue)
    with waking(queue):
        runs = served.serve(Does(lambda _: None), Does(lambda number: served.end() if number == 3 else None))
    assert runs == [3, 3]


def test_a_change_of_the_line_alone_wakes_no_controller(queue: Queue) -> None:
    with closing(queue.controller_listener()) as listener:
        while not listener.wait(0.05):
            queue.announce(Announcement(wakes_controller=True))
        while listener.wait(0.05):
            pass
        queue.announce(Announcement(wakes_workers=True, moves_line=True))
        assert not listener.wait(0.2)


def test_without_redis_the_database_is_looked_into_again_and_again(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert served.serve(Does(lambda number: served.end() if number == 3 else None)) == [3]
    assert caplog.text.count("polling the database instead") == 1, "it is said once"


def test_a_database_that_is_away_is_asked_again_and_said_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    def act(number: int) -> None:
        if number < 3:
            raise Unavailable("the database does not answer")
        served.end()

    assert served.serve(Does(act)) == [3]
    assert caplog.text.count("Does: the database does not answer; trying again") == 1


def test_a_duty_that_fails_rests_and_holds_up_no_other(
    database: Database, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: int) -> None:
        raise ValueError("a row that nobody expected")

    served = Served(database, queue)
    with waking(queue):
        runs = served.serve(Does(fail), Does(lambda number: served.end() if number == 5 else None))
    assert runs == [1, 5], "nobody wakes a duty that rests"
    assert "a row that nobody expected" in caplog.text


def test_a_signal_ends_a_wait(served: Served) -> None:
    with ended_by_a_signal(served):
        late = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        assert served.serve(Does(lambda _: late.start())) == [1]


def test_a_signal_lets_a_duty_end_and_no_other_begin(served: Served) -> None:
    ended: list[int] = []

    def act(number: int) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        ended.append(number)

    with ended_by_a_signal(served):
        assert served.serve(Does(act), Does(lambda _: None)) == [1, 0]
    assert ended == [1]
