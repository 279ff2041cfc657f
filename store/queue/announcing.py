"""What a program says to Redis, and how workers and controllers are woken. SQL makes jobs durable and fences claims."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
import json
from typing import Any

from redis import Redis

from store import announcement
from store.announcement import Announcement
from store.queue.line import questions
from store.queue.line.from_redis import RedisLine, positions_of
from store.queue.line.upkeep import Upkeep, committed_change
from store.redis import client as redis_client
from store.redis import names as redis_names
from store.redis import permissions as redis_permissions
from store.redis.client import Pause, QueueUnavailable, RedisForbids, connect, translated
from torchyard.contract.errors import Unavailable
from torchyard.contract.telemetry.views import LiveLine

LINE = "line"
"""The wake-up of workers for which nothing but the line and free devices have changed. Any other is for all."""


class Queue:
    """The Redis of one service. Threads may share it."""

    def __init__(self, url: str, *, service: Callable[[], str]) -> None:
        """Does not connect yet. `service` returns the service's id, and what it raises is passed on.

        Raises ConfigError.
        """
        self._quick = connect(url, timeout_s=redis_client.QUICK_S)
        self._patient = connect(url, timeout_s=redis_client.PATIENT_S)
        self._service = service
        self._pause = Pause()
        self.line = RedisLine(self._quick, service=service, pause=self._pause)
        """The line as Redis has it."""
        self.upkeep = Upkeep(self._patient, service=service)
        """What keeps it equal to the rows."""

    def announce(self, new: Announcement) -> Mapping[str, int] | None:
        """Updates the line, notifies watchers of jobs and wakes the workers. Call it after the commit.

        Returns the positions of the newcomers, if there are any and the line is complete. Raises QueueUnavailable.
        """
        service = self._service()
        with self._pause.translated("announce"):
            answer = questions.ANNOUNCE.run(self._quick, redis_names.line(service), _script_arguments(new, service))
        return dict(zip(_ids(new), json.loads(answer), strict=True)) if answer is not None else None

    def show(self, lines: Iterable[LiveLine]) -> None:
        """Sends lines that have no end so far to who watches. Raises QueueUnavailable."""
        channel = redis_names.changes(self._service())
        with self._pause.translated("announce"), self._quick.pipeline(transaction=False) as pipeline:
            for line in lines:
                pipeline.publish(channel, announcement.live(line))
            pipeline.execute()

    def ping(self) -> None:
        """Checks that Redis answers. Raises QueueUnavailable."""
        with translated():
            self._patient.ping()

    def check(self) -> None:
        """Checks that Redis answers and that its user may do all that is needed.

        Raises QueueUnavailable, and RedisForbids, which says what to add. Whose keys they are is not known while the
        database is away; then it only checks that Redis answers.
        """
        try:
            service = self._service()
        except Unavailable:
            self.ping()
            return
        with translated():
            missing = redis_permissions.missing(self._patient, service)
        if missing:
            raise RedisForbids(f"forbids what is needed: add to the rules of its user: {' '.join(missing)}")

    def listener(self) -> "WakeupListener":
        """Returns a listener for wake-ups of the workers; it subscribes at its first wait."""
        return WakeupListener(self._patient, channel=lambda: redis_names.wakeups(self._service()))

    def controller_listener(self) -> "WakeupListener":
        """Returns one for wake-ups of the controllers."""
        return WakeupListener(self._patient, channel=lambda: redis_names.controller(self._service()))

    def close(self) -> None:
        """Closes idle connections. A thread that uses one at this moment keeps it: closing it would raise there."""
        for redis in (self._quick, self._patient):
            redis.connection_pool.disconnect(inuse_connections=False)


class WakeupListener:
    """Waits for wake-ups on one channel. For one thread."""

    def __init__(self, redis: Redis, *, channel: Callable[[], str]) -> None:
        """`channel` returns its name. What it raises is passed on."""
        self.asked = False
        """Whether the last wake-up of workers was for a request, too. Otherwise only the line has changed."""
        self._channel = channel
        self._subscription = redis.pubsub(ignore_subscribe_messages=True)

    def wait(self, timeout: float) -> bool:
        """Returns whether a wake-up came within `timeout` seconds. Raises QueueUnavailable at once."""
        channel = self._channel()
        with translated():
            if not self._subscription.subscribed:
                self._subscription.subscribe(channel)
            wait_s, messages = timeout, set[object]()
            while (message := self._subscription.get_message(timeout=wait_s)) is not None:
                messages.add(message["data"])
                wait_s = 0.0  # wake-ups that came together count once
            self.asked = bool(messages - {LINE})
            return bool(messages)

    def close(self) -> None:
        self._subscription.close()


def server_info(url: str) -> dict[str, Any]:
    """Connects and returns the server's INFO. Raises ConfigError and QueueUnavailable."""
    with closing(connect(url, timeout_s=redis_client.PATIENT_S)) as redis, translated():
        return redis.info()


def missing_permissions(url: str, service: str) -> tuple[str, ...]:
    """Connects and returns the rules that the user of the URL lacks. Raises ConfigError and QueueUnavailable."""
    with closing(connect(url, timeout_s=redis_client.PATIENT_S)) as redis, translated():
        return redis_permissions.missing(redis, service)


def _ids(new: Announcement) -> list[str]:
    return [job.member.id for job in new.newcomers]


def _script_arguments(new: Announcement, service: str) -> list[str]:
    """Returns the arguments of `store.queue.line.questions.ANNOUNCE`."""
    changes = [committed_change(job_id, change) for job_id, change in new.line.items()]
    asked = positions_of(new.credits, new.newcomers) if new.credits is not None and new.newcomers else ()
    return [json.dumps(changes), json.dumps(_messages(new, service)), *asked]


def _messages(new: Announcement, service: str) -> list[tuple[str, list[str]]]:
    """Returns what is said to those who wait for it, by channel."""
    access = [name for name in new.changed if announcement.is_channel(name)]
    woken_by = [""] if new.wakes_workers else [LINE] if new.moves_line else []
    wakeups = [(redis_names.wakeups(service), woken_by)] if woken_by else []
    due = [(redis_names.controller(service), [""])] if new.wakes_controller else []
    return [*wakeups, *due, (redis_names.changes(service), [*new.changed]), (redis_names.access(service), access)]


__all__ = ["Queue", "QueueUnavailable", "RedisForbids", "WakeupListener", "missing_permissions", "server_info"]
