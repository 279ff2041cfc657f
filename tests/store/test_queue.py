"""The queue and the wake-ups, on a real Redis."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
import socket
import threading
import time

import pytest

from store.announcement import Announcement
from store.queue.announcing import Queue, QueueUnavailable, WakeupListener
from store.redis import names as redis_names
from store.redis.client import WrongKeys
from tests import line
from tests.approved import Approved
from tests.servers import administered, redis_server
from tests.store.fixture import a_service, run_together
from torchyard.contract.errors import ConfigError, Unavailable

_LONG_S = 20.0


def is_woken(listener: WakeupListener) -> bool:
    """Returns whether a wake-up comes within a generous deadline."""
    deadline = time.monotonic() + _LONG_S
    while time.monotonic() < deadline:
        if listener.wait(1.0):
            return True
    return False


def subscribed(listener: WakeupListener, queue: Queue) -> WakeupListener:
    """Returns the listener after its subscription is certain."""
    deadline = time.monotonic() + _LONG_S
    while time.monotonic() < deadline:
        queue.announce(Announcement(wakes_workers=True))
        if listener.wait(0.05):
            return listener
    raise AssertionError("the listener does not subscribe")


def test_the_highest_priority_comes_first_then_the_order_of_submission(queue: Queue) -> None:
    for job_id, priority in (("job_2", 0), ("job_1", 0), ("job_3", 100), ("job_0", -100), ("job_4", 1)):
        queue.announce(line.queued(job_id, priority))
    assert line.waiting(queue) == ["job_3", "job_4", "job_1", "job_2", "job_0"]
    queue.announce(line.left("job_4"))
    queue.announce(line.left("job_9"))
    queue.announce(line.queued("job_2", 5))
    assert line.waiting(queue) == ["job_3", "job_2", "job_1", "job_0"]


def test_an_announcement_during_close_raises_nothing_but_queue_unavailable(
    queue: Queue,
) -> None:
    closed = threading.Event()

    def ring_until_closed() -> int:
        announced = 0
        while not closed.is_set():
            with suppress(Unavailable):
                queue.announce(Announcement(wakes_workers=True))
            announced += 1
        return announced

    with ThreadPoolExecutor(2) as pool:
        ringing = [pool.submit(ring_until_closed) for _ in range(2)]
        for _ in range(200):
            queue.close()
        closed.set()
    assert all(thread.result() for thread in ringing)


def test_a_wakeup_reaches_every_listener(queue: Queue) -> None:
    with closing(queue.listener()) as one, closing(queue.listener()) as two:
        subscribed(one, queue)
        subscribed(two, queue)
        while one.wait(0) or two.wait(0):
            pass
        assert run_together(
            lambda: is_woken(one),
            lambda: is_woken(two),
            lambda: queue.announce(Announcement(wakes_workers=True)) is None,
        ) == [
            True,
            True,
            True,
        ]


def test_workers_are_woken_where_the_line_cannot_be_changed(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path) as url,
        administered(url) as redis,
        closing(Queue(url, service=a_service)) as queue,
        closing(queue.listener()) as listener,
    ):
        subscribed(listener, queue)
        while listener.wait(0):
            pass
        redis.set(f"{redis_names.line(a_service())}jobs", "no hash")
        with pytest.raises(WrongKeys):
            queue.announce(replace(line.queued("job_1"), wakes_workers=True))
        assert is_woken(listener)


def test_several_wakeups_are_one_answer(queue: Queue) -> None:
    with closing(queue.listener()) as listener:
        subscribed(listener, queue)
        for _ in range(100):
            queue.announce(Announcement(wakes_workers=True))
        assert is_woken(listener)
        # All that had arrived is one answer; what was still under way may be a second, but never a hundred.
        assert sum(listener.wait(0) for _ in range(100)) < 50


def test_without_redis_every_call_fails_at_once(tmp_path: Path, approved: Approved) -> None:
    with redis_server(tmp_path) as url:
        queue, listener = connected(url)
    calls: list[Callable[[], object]] = [
        lambda: queue.announce(line.queued("job_2")),
        lambda: queue.announce(line.left("job_1")),
        queue.line.heads,
        queue.check,
        lambda: queue.announce(Announcement(wakes_workers=True)),
        queue.ping,
        lambda: listener.wait(600),
    ]
    with closing(queue), closing(listener):
        for call in calls:
            with pytest.raises(Unavailable) as raised:
                call()
            assert str(raised.value) == approved("message", tmp_path=tmp_path)


def test_the_queue_and_its_listeners_recover_from_an_outage(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        queue, listener = connected(url)
    with closing(queue), closing(listener):
        with pytest.raises(Unavailable):
            queue.ping()
        with pytest.raises(Unavailable):
            listener.wait(1)
        with redis_server(tmp_path):
            queue.announce(line.queued("job_2"))
            assert "job_2" in line.waiting(queue)
            subscribed(listener, queue)


def test_a_connection_is_replaced_after_a_restart(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        queue, listener = connected(url)
    with redis_server(tmp_path), closing(queue), closing(listener):
        queue.announce(line.queued("job_1"))
        assert "job_1" in line.waiting(queue)


def connected(url: str) -> tuple[Queue, WakeupListener]:
    """Returns a queue and a listener that are connected to the server."""
    queue = Queue(url, service=a_service)
    queue.ping()
    return queue, subscribed(queue.listener(), queue)


def test_an_error_does_not_tell_the_password(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        for broken in (url.replace("the-embedded-password", "s3cret"), f"unix://torchyard:s3cret@{tmp_path}/absent"):
            with closing(Queue(broken, service=a_service)) as queue, pytest.raises(QueueUnavailable) as caught:
                queue.ping()
            assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r}"


@pytest.mark.parametrize("address", ["nonsense", "http://:s3cret@box", "redis://:s3cret@box:port/0"])
def test_an_invalid_address_is_refused_without_quoting_its_password(address: str) -> None:
    with pytest.raises(ConfigError, match="expected redis://") as caught:
        Queue(address, service=a_service)
    assert "s3cret" not in str(caught.value)


def test_a_hung_redis_delays_only_one_caller(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:  # takes connections and never answers
        hanging.bind(str(tmp_path / "s"))
        hanging.listen()
        with closing(Queue(f"unix://{tmp_path}/s", service=a_service)) as queue:
            with pytest.raises(Unavailable, match="does not answer"):
                queue.announce(line.queued("job_1"))
            with pytest.raises(Unavailable, match="a moment ago"):
                queue.announce(Announcement(changed={"job_1"}))


def test_a_listener_tells_a_line_that_moved_from_a_request(queue: Queue) -> None:
    line_moved, request = Announcement(moves_line=True), Announcement(wakes_workers=True)
    with closing(queue.listener()) as listener:
        subscribed(listener, queue)
        for said, asked in (([line_moved], False), ([request], True), ([line_moved, request, line_moved], True)):
            while listener.wait(0):
                pass
            for announcement in said:
                queue.announce(announcement)
            heard: list[bool] = []
            while asked not in heard and is_woken(listener):
                heard.append(listener.asked)
            assert heard[-1] is asked
            assert asked or not any(heard)
