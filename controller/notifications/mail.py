"""Mail by SMTP. Nothing that a job says is in a header."""

from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
import re
import smtplib
import socket
import ssl

import httpcore2

from controller.notifications.channels import Words
from controller.notifications.failure import NotDelivered
from controller.notifications.settings import NotificationSettings

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")
_KIND, _ID = re.compile(r"[a-z]+(\.[a-z]+)?"), re.compile(r"msg_[0-9a-f]{32}")
_EXCHANGE_S = 10.0
"""Seconds of each step of the exchange."""


@dataclass(frozen=True)
class Mail:
    """Sends mail by the operator's server."""

    settings: NotificationSettings
    tls: ssl.SSLContext | None = None
    """None verifies by the system's certificates, or those of SSL_CERT_FILE."""

    def send(self, to: str, *, kind: str, message_id: str, words: Words) -> None:
        """Returns once the server has taken the mail. Raises NotDelivered."""
        if not self.settings.smtp_host:
            raise NotDelivered("no mail server is configured (TORCHYARD_SMTP_HOST)")
        if _ADDRESS.fullmatch(to) is None:
            raise NotDelivered("the address is not an email address", final=True)
        mail = self._written(to, kind=kind, message_id=message_id, words=words)
        try:
            with self._connected() as server:
                if self.settings.smtp_user:
                    server.login(self.settings.smtp_user, self.settings.smtp_password.get_secret_value())
                server.send_message(mail, self._sender, [to])
        except smtplib.SMTPRecipientsRefused as error:
            [(code, _)] = error.recipients.values()
            raise NotDelivered(f"the mail server refused the address ({code})", final=500 <= code < 600) from None
        except smtplib.SMTPResponseException as error:
            raise NotDelivered(f"the mail server answered {error.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotDelivered(f"the mail server cannot be used: {_what(error)}") from None

    @property
    def _sender(self) -> str:
        return self.settings.smtp_from or f"torchyard@{socket.getfqdn()}"

    def _connected(self) -> smtplib.SMTP:
        host, port, security = self.settings.smtp_host, self.settings.smtp_port, self.settings.smtp_security
        if security == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=_EXCHANGE_S, context=self._trusted())
        server = smtplib.SMTP(host, port, timeout=_EXCHANGE_S)
        try:
            if security == "starttls":
                server.starttls(context=self._trusted())
        except BaseException:
            server.close()
            raise
        return server

    def _trusted(self) -> ssl.SSLContext:
        return self.tls or httpcore2.default_ssl_context()

    def _written(self, to: str, *, kind: str, message_id: str, words: Words) -> EmailMessage:
        mail = EmailMessage()
        mail["From"], mail["To"] = self._sender, to
        mail["Subject"] = f"Torchyard: {kind}" if _KIND.fullmatch(kind) else "Torchyard"
        if _ID.fullmatch(message_id):  # the same for each attempt, so that a mailbox can tell
            mail["Message-ID"] = f"<{message_id}@{self._sender.partition('@')[2]}>"
        mail["Date"] = formatdate()
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content("\n".join([words.text, *(["", words.link] if words.link else []), ""]))
        return mail


def _what(error: Exception) -> str:
    return type(error).__name__ if isinstance(error, smtplib.SMTPException) else str(error)[:200]
