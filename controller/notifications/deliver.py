"""The duties about notifications: makes messages of what happened, sends those that are due, and cleans up."""

from collections.abc import Callable
import logging
import random
from threading import Thread
import time

from controller.notifications import channels
from controller.notifications.failure import NotDelivered
from controller.notifications.http import Http
from controller.notifications.mail import Mail
from controller.notifications.settings import NotificationSettings
from store.notifications import deliver, signals
from store.notifications.facts import MessageFacts
from store.notifications.fan_out import fan_out
from store.store import Store
from torchyard.contract.errors import TorchyardError
from torchyard.contract.notifications.kinds import TEST

MOST_AT_ONCE = 16
"""Messages that one controller sends at the same time."""
THREAD = "notifications"
"""The name of the threads. They do not keep the program: what one leaves undone is sent again."""
GIVEN_UP_AFTER_S = 24 * 3600.0
_LEASE_S = 120.0
"""Longer than any exchange: one of mail has several steps."""
_FIRST_S, _FACTOR, _LONGEST_S = 10.0, 3, 7200.0
"""Of the waits between two attempts, in seconds: 10, 30, 90, … and then every two hours."""
_SIGNALS_AT_ONCE = 100
"""Signals of one user in one transaction."""


class FanOut:
    """A duty: makes the messages of all signals that wait, and removes the signals."""

    interval_s = 2.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Makes some messages of each user who has signals. Returns whether there is more. Raises Unavailable."""
        has_more = False
        with self._store.read() as session:
            owners = signals.waiting_owners(session)
        for owner in owners:
            with self._store.write("fan_out") as session:
                has_more |= fan_out(session, owner, most=_SIGNALS_AT_ONCE)
        return has_more


class Upkeep:
    """A duty: gives up messages that wait for too long, and deletes old ones."""

    interval_s = 600.0

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> bool:
        """Cleans some messages. Returns whether there are more. Raises Unavailable."""
        with self._store.write("clean_messages") as session:
            return deliver.clean(session)


class Deliveries:
    """The duty. What waits for a receiver waits in a thread, so that neither other duties nor other messages do.

    A message is sent at least once, with one id: a controller that is killed in between leaves it to the next one.
    """

    interval_s = 1.0

    def __init__(self, store: Store, settings: NotificationSettings, *, http: Http | None = None) -> None:
        """`http` is made of the settings if it is not given."""
        self._store = store
        self._public_url = settings.public_url
        self._http = http or Http(settings.allowed)
        self._mail = Mail(settings)
        self._threads: list[Thread] = []

    def run(self) -> bool:
        """Gives due messages to the threads that are free. Returns False: each thread looks for more by itself."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for message in self._claimed(MOST_AT_ONCE - len(self._threads)):
            self._threads.append(Thread(target=self._send_all, args=(message,), name=THREAD, daemon=True))
            self._threads[-1].start()
        return False

    def _claimed(self, count: int) -> list[MessageFacts]:
        """Takes up to `count` messages that are due. Writes nothing where there is none."""
        if not count:
            return []
        with self._store.read() as session:
            if not deliver.has_due(session):
                return []
        with self._store.write("claim_messages") as session:
            return deliver.claim(session, self._store.secret_keys, count=count, lease_s=_LEASE_S)

    def _send_all(self, message: MessageFacts) -> None:
        """Sends a message, and then others that are due meanwhile."""
        try:
            while True:
                self._send(message)
                more = self._claimed(1)
                if not more:
                    return
                [message] = more
        except TorchyardError as error:
            logging.warning("a message waits until its lease ends: %s", error)

    def _send(self, message: MessageFacts) -> None:
        """Sends a message and stores how that went. Raises Unavailable."""
        try:
            self._channel(message.target.kind)(message)
        except NotDelivered as error:
            again = None if error.final else again_in_s(message, retry_after_s=error.retry_after_s)
            return self._mark_failed(message, error.message, again_in_s=again)
        except Exception:
            logging.exception("message %s", message.id)
            return self._mark_failed(message, "the service has a fault: see its log", again_in_s=again_in_s(message))
        with self._store.write("message_result") as session:
            return deliver.mark_delivered(session, message.id)

    def _mark_failed(self, message: MessageFacts, error: str, *, again_in_s: float | None) -> None:
        with self._store.write("message_result") as session:
            deliver.mark_failed(session, message.id, error, again_in_s=again_in_s)

    def _channel(self, kind: str) -> Callable[[MessageFacts], None]:
        return {
            "webhook": self._send_webhook,
            "slack": self._send_slack,
            "discord": self._send_discord,
            "mail": self._send_mail,
        }[kind]

    def _send_webhook(self, message: MessageFacts) -> None:
        body = channels.webhook_body(message.body)
        headers = channels.webhook_headers(message.id, body, secret=message.target.secret, now_s=int(time.time()))
        self._http.post(message.target.address, body, headers=headers)

    def _send_slack(self, message: MessageFacts) -> None:
        words = channels.words_of(message.body, public_url=self._public_url)
        self._http.post(message.target.address, channels.slack(words), headers=channels.JSON_HEADERS)

    def _send_discord(self, message: MessageFacts) -> None:
        words = channels.words_of(message.body, public_url=self._public_url)
        self._http.post(message.target.address, channels.discord(words), headers=channels.JSON_HEADERS)

    def _send_mail(self, message: MessageFacts) -> None:
        words = channels.words_of(message.body, public_url=self._public_url)
        self._mail.send(message.target.address, kind=message.kind, message_id=message.id, words=words)


def again_in_s(message: MessageFacts, *, retry_after_s: float | None = None) -> float | None:
    """Returns in how many seconds a message that did not arrive is sent again; None if it is given up.

    One by which a user tries a target is sent once: they are waiting.
    """
    wait = min(_FIRST_S * _FACTOR ** min(message.attempts - 1, 9), _LONGEST_S)
    wait = max(wait * random.uniform(0.8, 1.2), retry_after_s or 0)  # noqa: S311 - so that not all come back at once
    return None if message.kind == TEST or message.age_s + wait > GIVEN_UP_AFTER_S else wait
