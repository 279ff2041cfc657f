"""What is due is sent to real receivers, at least once and with one id, whatever one of them does."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
import json
from pathlib import Path
import secrets
import socket
import threading
from typing import Any

import pytest
from sqlalchemy import select, update
from standardwebhooks import Webhook

from controller.notifications.deliver import GIVEN_UP_AFTER_S, MOST_AT_ONCE, THREAD, Deliveries, again_in_s
from controller.notifications.http import Http
from controller.notifications.settings import NotificationSettings
from store.db.database import in_us
from store.notifications import deliver, targets
from store.notifications.facts import Destination, MessageFacts, NewTarget
from store.secret_keys import SecretKeys
from store.store import Store
from store.tables import Message
from store.team import users
from store.team.callers import SERVICE
from tests.controller.notifications.mailboxes import mailbox
from tests.controller.notifications.receivers import Receiver, answering, join_senders, receiver
from tests.databases import quick_on_sqlite
from tests.sessions import read, write
from tests.worker.attempt import wait_for
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.notifications.views import TargetView
from torchyard.contract.team.roles import Role

BODY = {"type": "job.failed", "timestamp": "2026-11-27T01:00:00.000Z"}
DATA: dict[str, Any] = {
    "title": "job <digits> failed",
    "text": "@channel boom",
    "job": {"id": "job_1", "name": "<digits>"},
}


class Sender:
    """Users with targets, and messages for them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.secret = ""
        """Of the newest webhook."""
        store.secret_keys = SecretKeys(secrets.token_hex(32), Path("/nowhere"))
        with store.write("team") as session:
            for name in ("ada", "eve"):
                users.add(session, name=name, role=Role.MEMBER, caller=SERVICE)

    def target(self, address: str, *, kind: str = "webhook", owner: str = "ada", name: str = "hook") -> TargetView:
        new = NewTarget(owner=owner, name=name, kind=kind, address=address, kinds=tuple(EventKind))
        added, secret = write(self.store, targets.add, self.store.secret_keys, new, caller=SERVICE)
        self.secret = secret or self.secret
        return added

    def message(self, target: TargetView, *, kind: str = "job.failed") -> str:
        """Makes a message of this kind, by the way of a test of the target."""
        made = write(self.store, targets.send_test, target.id, owner=None, caller=SERVICE)
        values = {} if kind == "test" else {"kind": kind, "body": {**BODY, "data": DATA}}
        if values:
            self._change(made.id, **values)
        return made.id

    def message_of(self, message_id: str) -> Message:
        with self.store.read() as session:
            return session.scalars(select(Message).where(Message.id == message_id)).one()

    def is_settled(self, message_id: str) -> bool:
        """Returns whether nobody is sending it after an attempt."""
        found = self.message_of(message_id)
        return found.attempts > 0 and found.leased_until is None

    def make_due(self, message_id: str) -> None:
        """Lets time pass until the next attempt, or until the lease of a sender ends."""
        self._change(message_id, next_at=Message.created_at, leased_until=None)

    def _change(self, message_id: str, **values: Any) -> None:
        with self.store.write("test") as session:
            session.execute(update(Message).where(Message.id == message_id).values(**values))


@pytest.fixture
def sender(store: Store) -> Sender:
    return Sender(store)


@contextmanager
def deliveries(sender: Sender, *receivers: Receiver, **settings: Any) -> Generator[Deliveries]:
    allow = ",".join(f"127.0.0.1/32:{found.port}" for found in receivers)
    chosen = NotificationSettings.model_validate({"notify_allow": allow, **settings})
    made = Deliveries(sender.store, chosen, http=Http(chosen.allowed, exchange_s=600))
    try:
        yield made
    finally:
        join_senders()


def send(duty: Deliveries, sender: Sender, *message_ids: str) -> None:
    """Does the duty once, and waits for what it has begun."""
    duty.run()
    wait_for(lambda: all(map(sender.is_settled, message_ids)), what="the messages are sent")


def verified(found: tuple[dict[str, str], bytes], secret: str) -> dict[str, Any]:
    """Returns the JSON of a webhook, as a receiver reads it that knows the specification and the secret alone."""
    headers, body = found
    return Webhook(secret).verify(body, headers)


@quick_on_sqlite
def test_a_webhook_arrives_signed(sender: Sender) -> None:
    with receiver() as found, deliveries(sender, found) as duty:
        message_id = sender.message(sender.target(found.url("/hook?key=1")))
        send(duty, sender, message_id)
    [request] = found.requests
    assert request[0][""] == "POST /hook?key=1 HTTP/1.1"
    assert request[0]["webhook-id"] == message_id
    assert verified(request, sender.secret) == {**BODY, "data": DATA}
    told = sender.message_of(message_id)
    assert (told.attempts, told.next_at, told.error) == (1, None, None)
    assert told.delivered_at is not None


@pytest.mark.parametrize(("kind", "key"), [("slack", "text"), ("discord", "content")])
@quick_on_sqlite
def test_a_chat_gets_its_form_with_a_link(sender: Sender, kind: str, key: str) -> None:
    public = "https://yard.example.com"
    with receiver(answering("204 No Content")) as found, deliveries(sender, found, public_url=public) as duty:
        send(duty, sender, sender.message(sender.target(found.url(), kind=kind)))
    [(headers, body)] = found.requests
    said = json.loads(body)[key]
    assert headers["content-type"] == "application/json"
    assert said.endswith("\nhttps://yard.example.com/jobs/job_1")
    assert "digits" in said and "<digits>" not in said and "@channel" not in said


@quick_on_sqlite
def test_a_mail_arrives(sender: Sender) -> None:
    with (
        mailbox() as box,
        deliveries(sender, smtp_host="127.0.0.1", smtp_port=box.port, smtp_security="none") as duty,
    ):
        message_id = sender.message(sender.target("ada@example.com", kind="mail"))
        send(duty, sender, message_id)
    [(_, to, _)], [mail] = box.taken, box.mails
    assert to == ["ada@example.com"]
    assert mail["Subject"] == "Torchyard: job.failed"
    assert message_id in mail["Message-ID"]
    assert "job <digits> failed" in mail.get_content()


@quick_on_sqlite
def test_what_failed_comes_again_with_its_id_and_is_seen_meanwhile(sender: Sender) -> None:
    statuses = ["500 Oops", "503 Later", "200 OK"]

    def next_status(connection: socket.socket) -> None:
        answering(statuses.pop(0))(connection)

    with receiver(next_status) as found, deliveries(sender, found) as duty:
        target = sender.target(found.url("/secret-path"))
        message_id = sender.message(target)
        for status in ("500", "503"):
            send(duty, sender, message_id)
            assert sender.message_of(message_id).error == f"127.0.0.1 answered {status}"
            [listed] = read(sender.store, targets.list_targets, "ada")
            assert (listed.error, listed.waiting) == (f"127.0.0.1 answered {status}", 1)
            sender.make_due(message_id)
        send(duty, sender, message_id)
    [listed] = read(sender.store, targets.list_targets, "ada")
    assert (listed.error, listed.waiting, listed.given_up) == (None, 0, 0)
    assert [headers["webhook-id"] for headers, _ in found.requests] == [message_id] * 3
    assert len({verified(request, sender.secret)["type"] for request in found.requests}) == 1


def test_a_message_that_is_not_due_waits(sender: Sender) -> None:
    with receiver(answering("500 Oops")) as found, deliveries(sender, found) as duty:
        message_id = sender.message(sender.target(found.url()))
        send(duty, sender, message_id)
        duty.run()
    assert len(found.requests) == 1


def test_what_a_killed_controller_had_claimed_is_sent_by_another(sender: Sender) -> None:
    with receiver() as found, deliveries(sender, found) as duty:
        message_id = sender.message(sender.target(found.url()))
        [claimed] = write(sender.store, deliver.claim, sender.store.secret_keys, count=9, lease_s=120)
        duty.run()
        assert (claimed.id, found.requests) == (message_id, [])
        sender.make_due(message_id)
        send(duty, sender, message_id)
    assert [headers["webhook-id"] for headers, _ in found.requests] == [message_id]
    assert sender.message_of(message_id).attempts == 2


@quick_on_sqlite
def test_what_waits_for_one_target_is_sent_one_after_the_other(sender: Sender) -> None:
    with receiver() as found, deliveries(sender, found) as duty:
        target = sender.target(found.url())
        ids = [sender.message(target) for _ in range(5)]
        send(duty, sender, *ids)
    assert [headers["webhook-id"] for headers, _ in found.requests] == ids


def test_a_receiver_that_hangs_delays_no_other_user(sender: Sender) -> None:
    released, reached = threading.Event(), threading.Semaphore(0)

    def hang(_: object) -> None:
        reached.release()
        released.wait(60)

    with receiver(hang) as hanging, receiver() as found:
        targets = [sender.target(hanging.url(), name=f"hook-{number}") for number in range(MOST_AT_ONCE)]
        with deliveries(sender, hanging, found) as duty:
            stuck = [sender.message(target) for target in targets for _ in range(2)]
            duty.run()
            assert reached.acquire(timeout=60)
            others = [sender.message(sender.target(found.url(), owner="eve"))]
            send(duty, sender, *others)
            assert not any(sender.is_settled(message_id) for message_id in stuck)
            assert all(thread.daemon for thread in threading.enumerate() if thread.name == THREAD)  # it can end
            released.set()
    assert [headers["webhook-id"] for headers, _ in found.requests] == others


def test_an_address_inside_the_network_is_given_up_at_once(sender: Sender) -> None:
    with receiver() as found, deliveries(sender) as duty:
        message_id = sender.message(sender.target(f"http://127.0.0.1:{found.port}/"))
        send(duty, sender, message_id)
    told = sender.message_of(message_id)
    assert told.next_at is None and "not allowed" in str(told.error)
    assert found.requests == []


def test_a_test_is_sent_once(sender: Sender) -> None:
    with receiver(answering("404 Not Found")) as found, deliveries(sender, found) as duty:
        message_id = sender.message(sender.target(found.url()), kind="test")
        send(duty, sender, message_id)
    told = sender.message_of(message_id)
    assert (told.attempts, told.next_at, told.error) == (1, None, "127.0.0.1 answered 404")
    assert verified(found.requests[0], sender.secret)["type"] == "test"


def test_a_fault_of_ours_ends_neither_the_thread_nor_the_message(sender: Sender) -> None:
    with receiver() as found, deliveries(sender, found) as duty:
        broken = sender.message(sender.target(found.url(), kind="slack"))
        with sender.store.write("test") as session:
            session.execute(update(Message).values(body={}))
        whole = sender.message(sender.target(found.url(), name="other"))
        send(duty, sender, broken, whole)
    assert sender.message_of(broken).next_at is not None
    assert sender.message_of(whole).delivered_at is not None


def _facts(*, attempts: int = 1, age_s: float = 0, kind: str = "job.failed") -> MessageFacts:
    to = Destination("ntf_1", "ada", "hook", "webhook", "https://a.example/", None)
    return MessageFacts("msg_1", kind, {}, attempts, age_s, to)


def test_attempts_come_at_growing_distances_for_a_day() -> None:
    waits, age = list[float](), 0.0
    while (wait := again_in_s(_facts(attempts=len(waits) + 1, age_s=age))) is not None:
        waits.append(wait)
        age += wait
    assert 8 <= waits[0] <= 12
    assert all(later > sooner for sooner, later in pairwise(waits[:6]))
    assert GIVEN_UP_AFTER_S - in_us(timedelta(hours=3)) / 1e6 < age <= GIVEN_UP_AFTER_S
    assert 12 < len(waits) < 30


@pytest.mark.parametrize(("asked", "least"), [(600.0, 600.0), (None, 8.0), (1.0, 8.0)])
def test_a_receiver_that_asks_for_time_gets_it(asked: float | None, least: float) -> None:
    wait = again_in_s(_facts(), retry_after_s=asked)
    assert wait is not None and wait >= least


def test_any_number_of_attempts_has_a_wait() -> None:
    assert again_in_s(_facts(attempts=10**9)) is not None
