"""The settings of notifications: `TORCHYARD_NOTIFY_ALLOW` and `TORCHYARD_SMTP_*`."""

from email.errors import MessageError
from email.headerregistry import Address
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from controller.notifications.addresses import Allowed
from store.settings import PublicAddress
from torchyard.contract.errors import ConfigError


def _allowed(value: str) -> str:
    try:
        Allowed.parse(value)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return value


def _mail_address(value: str) -> str:
    try:
        Address(addr_spec=value or "a@b")
    except (MessageError, ValueError, IndexError):
        raise ValueError(f"{value!r} is not an email address: write torchyard@example.com") from None
    return value


class NotificationSettings(PublicAddress):
    """Where notifications may go, and what sends mail."""

    notify_allow: Annotated[str, AfterValidator(_allowed)] = ""
    """Hosts and networks, each with its port, that are allowed beside public addresses: `10.1.0.0/16:443`."""
    smtp_host: str = ""
    """Empty: no mail is sent."""
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = 587
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """`tls`: from the first byte, as on port 465. `none`: in clear text, without a certificate."""
    smtp_user: str = ""
    """Empty: without a login."""
    smtp_password: SecretStr = SecretStr("")
    smtp_from: Annotated[str, AfterValidator(_mail_address)] = ""
    """The address that mail comes from. Empty: `torchyard@` and the name of the host."""

    @cached_property
    def allowed(self) -> Allowed:
        return Allowed.parse(self.notify_allow)
