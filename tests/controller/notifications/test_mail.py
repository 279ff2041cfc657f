"""Mail to a real SMTP server: what it says, how it is sent, and what a job may try."""

from pathlib import Path
import socket
import ssl

import pytest

from controller.notifications.channels import Words
from controller.notifications.failure import NotDelivered
from controller.notifications.mail import Mail
from controller.notifications.settings import NotificationSettings
from tests.controller.notifications.certificates import certificate
from tests.controller.notifications.mailboxes import PASSWORD, USER, Mailbox, mailbox

ID = f"msg_{'0' * 32}"
WORDS = Words(("digits failed", "user_error: boom ü"), "https://torchyard.example.com/jobs/job_1")
TO = "alice@example.com"

pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # over implicit TLS, for one


def _mail(box: Mailbox, tls: ssl.SSLContext | None = None, **changed: object) -> Mail:
    given = {"smtp_host": "localhost", "smtp_port": box.port, "smtp_security": "none", "smtp_from": "yard@example.com"}
    return Mail(NotificationSettings.model_validate({**given, **changed}), tls)


def _send(mail: Mail, to: str = TO, *, kind: str = "job.failed", words: Words = WORDS, message_id: str = ID) -> None:
    mail.send(to, kind=kind, message_id=message_id, words=words)


def test_a_mail_says_what_happened_and_where_to_look() -> None:
    with mailbox() as box:
        _send(_mail(box))
    [(sender, to, _)], [mail] = box.taken, box.mails
    assert (sender, to) == ("yard@example.com", [TO])
    assert (mail["From"], mail["To"], mail["Subject"]) == ("yard@example.com", TO, "Torchyard: job.failed")
    assert (mail["Message-ID"], mail["Auto-Submitted"]) == (f"<{ID}@example.com>", "auto-generated")
    text = "digits failed\nuser_error: boom ü\n\nhttps://torchyard.example.com/jobs/job_1\n"
    assert mail.get_content().replace("\r\n", "\n") == text


@pytest.mark.parametrize(
    ("implicit", "login"),
    [(False, True), (True, True), *(pytest.param(how, False, marks=pytest.mark.thorough) for how in (False, True))],
)
def test_a_mail_goes_over_tls_with_a_login(tmp_path: Path, implicit: bool, login: bool) -> None:
    authority, server = certificate(tmp_path, "localhost")
    account = {"smtp_user": USER, "smtp_password": PASSWORD} if login else {}
    with mailbox(tls=server, implicit=implicit, login=login) as box:
        trusting = ssl.create_default_context(cafile=authority)
        _send(_mail(box, trusting, smtp_security="tls" if implicit else "starttls", **account))
    assert len(box.taken) == 1
    assert box.logins == ([USER.encode()] if login else [])


@pytest.mark.parametrize(("host", "trusted"), [("localhost", False), ("other.test", True)])
@pytest.mark.parametrize("implicit", [False, True])
def test_nothing_is_told_to_a_server_without_the_right_certificate(
    tmp_path: Path, host: str, trusted: bool, implicit: bool
) -> None:
    authority, server = certificate(tmp_path, host)
    client = ssl.create_default_context(cafile=authority if trusted else None)
    with mailbox(tls=server, implicit=implicit, login=True) as box, pytest.raises(NotDelivered, match="certificate"):
        security = "tls" if implicit else "starttls"
        _send(_mail(box, client, smtp_security=security, smtp_user=USER, smtp_password=PASSWORD))
    assert (box.taken, box.logins) == ([], [])


def test_a_server_that_offers_no_encryption_gets_no_password() -> None:
    with mailbox(login=True) as box, pytest.raises(NotDelivered, match="cannot be used"):
        _send(_mail(box, smtp_security="starttls", smtp_user=USER, smtp_password=PASSWORD))
    assert (box.taken, box.logins) == ([], [])


def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    authority, server = certificate(tmp_path, "localhost")
    with mailbox(tls=server, login=True) as box, pytest.raises(NotDelivered, match="answered 535") as failed:
        trusting = ssl.create_default_context(cafile=authority)
        _send(_mail(box, trusting, smtp_security="starttls", smtp_user=USER, smtp_password="secret-word"))
    assert "secret" not in failed.value.message and not failed.value.final


@pytest.mark.parametrize(("refusal", "final"), [("550 unknown", True), ("450 try later", False)])
def test_an_address_that_the_server_refuses_is_told(refusal: str, final: bool) -> None:
    with mailbox(refusal=refusal) as box, pytest.raises(NotDelivered, match="refused the address") as failed:
        _send(_mail(box))
    assert failed.value.final is final


ATTACKS = [
    "x\r\nBcc: eve@example.com",
    "x\nSubject: other",
    "x\r\n.\r\nMAIL FROM:<eve@example.com>\r\nRCPT TO:<eve@example.com>\r\nDATA\r\n",
    "x\r\n\r\n<script>",
    "x\x00\x0b\x0c\x85\u2028Bcc: eve@example.com",
    "=?utf-8?q?=0D=0ABcc:_eve=40example.com?=",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_what_a_job_says_stays_in_the_body_on_its_line(text: str) -> None:
    with mailbox() as box:
        _send(_mail(box), words=Words((text, text)))
    [(_, to, _)], [mail] = box.taken, box.mails
    assert to == [TO]
    assert set(mail.keys()) == {
        *("From", "To", "Subject", "Message-ID", "Date", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding"),
        *("MIME-Version",),
    }
    assert len(mail.get_content().splitlines()) == 2


@pytest.mark.parametrize("text", ATTACKS)
def test_no_text_comes_into_a_header_by_kind_or_id(text: str) -> None:
    with mailbox() as box:
        _send(_mail(box), kind=text, message_id=text)
    [mail] = box.mails
    assert (mail["Subject"], mail["Message-ID"], mail["Bcc"]) == ("Torchyard", None, None)


@pytest.mark.parametrize(
    "to",
    [
        *("", "alice", "a@b\r\nRCPT TO:<eve@example.com>", "a@b> SIZE=1", "<a@b>", "a@b,c@d", "a b@c", '"a\n"@b'),
        *("Alice <a@b>", "ä@b.example", "a@b\x00", "a@b@c"),
    ],
)
def test_what_is_no_address_gets_no_mail(to: str) -> None:
    with mailbox() as box, pytest.raises(NotDelivered) as failed:
        _send(_mail(box), to)
    assert failed.value.final and box.taken == []


def test_without_a_server_the_setting_is_named() -> None:
    with pytest.raises(NotDelivered, match="TORCHYARD_SMTP_HOST"):
        _send(Mail(NotificationSettings()))


def test_a_server_that_is_away_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        box = Mailbox(port=listening.getsockname()[1])
    with pytest.raises(NotDelivered, match="refused"):
        _send(_mail(box))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("smtp_from", "a@b\r\nBcc: c@d"),
        ("smtp_from", "no address"),
        ("public_url", "javascript:alert(1)"),
        ("public_url", "https://user@host"),
        ("notify_allow", "10.0.0.0/8"),
        ("smtp_security", "ssl"),
        ("smtp_port", 0),
    ],
)
def test_wrong_settings_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key):
        NotificationSettings.model_validate({key: value})
