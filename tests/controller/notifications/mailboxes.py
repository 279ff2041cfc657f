"""A real mail server on loopback, for as long as a `with` block."""

from asyncio.base_events import Server
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
import ssl
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "torchyard", "the-password"


@dataclass
class Mailbox:
    """What the server has taken, and how it refuses."""

    port: int = 0
    refusal: str | None = None
    """What it answers to each recipient."""
    taken: list[tuple[str, list[str], bytes]] = field(default_factory=list[tuple[str, list[str], bytes]])
    """Sender, recipients and the mail as it came."""
    logins: list[bytes] = field(default_factory=list[bytes])

    @property
    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(data, _class=EmailMessage, policy=policy.default) for *_, data in self.taken]

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        del server, session, options
        if self.refusal is None:
            envelope.rcpt_tos.append(address)
        return self.refusal or "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        del server, session
        assert isinstance(envelope.content, bytes)
        self.taken.append((str(envelope.mail_from), list(envelope.rcpt_tos), envelope.content))
        return "250 OK"


@contextmanager
def mailbox(
    *, refusal: str | None = None, tls: ssl.SSLContext | None = None, implicit: bool = False, login: bool = False
) -> Generator[Mailbox]:
    """Runs the server. `tls`: it wants STARTTLS, or with `implicit` TLS from the first byte. `login`: it wants one."""
    box = Mailbox(refusal=refusal)

    def check(server: SMTP, session: Session, envelope: Envelope, mechanism: str, given: Any) -> AuthResult:
        del server, session, envelope, mechanism
        assert isinstance(given, LoginPassword)
        box.logins.append(given.login)
        return AuthResult(success=(given.login, given.password) == (USER.encode(), PASSWORD.encode()), handled=False)

    options: dict[str, Any] = {"ssl_context": tls} if implicit else {"tls_context": tls, "require_starttls": bool(tls)}
    if login:
        options |= {"authenticator": check, "auth_required": True, "auth_require_tls": tls is not None and not implicit}
    controller = _AnyPort(box, hostname="127.0.0.1", port=0, **options)
    controller.start()
    try:
        box.port = controller.port
        yield box
    finally:
        controller.stop()


class _AnyPort(Controller):
    """Listens on a port that is free, and asks that one whether it answers."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()
