"""What a receiver of webhooks shows of messages that are lost, doubled, changed or forged."""

from collections.abc import Generator, Sequence
from datetime import UTC, datetime
import http.client
from typing import Any

import pytest

from controller.notifications import channels
from tests.chaos.receiver import Receiver, receiving, violations
from torchyard.contract.notifications.views import MessageView

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Generator[Receiver]:
    with receiving() as receiver:
        receiver.secret = SECRET
        yield receiver


def message(number: int = 1, **changes: Any) -> MessageView:
    plain: dict[str, Any] = {"id": f"msg_{number}", "target_id": "ntf_1", "kind": "job.failed", "attempts": 1}
    plain |= {
        "subject": f"job_{number}",
        "state": "delivered",
        "title": "",
        "text": "",
        "created_at": datetime.now(UTC),
    }
    return MessageView.model_validate(plain | changes)


def send(receiver: Receiver, number: int = 1, body: bytes = b"{}", *, secret: str = SECRET) -> int:
    """Sends a webhook. Returns the status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", receiver.server_port)
    headers = channels.webhook_headers(f"msg_{number}", body, secret=secret, now_s=1)
    connection.request("POST", "/", body, headers)
    return connection.getresponse().status


def found(receiver: Receiver, told: Sequence[MessageView], *jobs: str, digested: int = 0) -> list[str]:
    return violations(receiver, told, jobs, digested=digested)


def test_a_message_may_come_twice(receiver: Receiver) -> None:
    send(receiver)
    send(receiver)
    assert found(receiver, [message()], "job_1") == []


def test_of_five_messages_one_is_refused_once(receiver: Receiver) -> None:
    assert [send(receiver, number) for number in (1, 2, 3, 4, 5, 5, 6)] == [204, 204, 204, 204, 503, 204, 204]


def test_a_job_in_a_digest_has_no_message(receiver: Receiver) -> None:
    assert found(receiver, [], "job_1", digested=1) == []
    assert found(receiver, [], "job_1") == ["of 1 jobs no message tells the end, and digests have 0"]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([message(), message(2, subject="job_1")], "job_1: 2 messages tell its end"),
        ([message(state="waiting", error="500")], "msg_1: is waiting: 500"),
        ([message(3, subject="job_1")], "msg_3: was never received"),
    ],
)
def test_what_is_wrong_is_said(receiver: Receiver, told: list[MessageView], says: str) -> None:
    for number in (1, 2):
        send(receiver, number)
    assert says in found(receiver, told, "job_1")


def test_changed_forged_and_invented_messages_are_found(receiver: Receiver) -> None:
    send(receiver)
    send(receiver, body=b"{ }")
    send(receiver, 2, secret="whsec_AAAA")
    assert found(receiver, [message()], "job_1") == [
        "msg_1: came with 2 bodies",
        "msg_2: was received, and nobody has made it",
        "msg_2: is wrongly signed",
    ]
