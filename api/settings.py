"""The settings of the API: `TORCHYARD_*` variables, with defaults for one machine."""

from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from api.limits.settings import LimitSettings
from store import settings
from store.output.settings import OutputSettings
from torchyard.contract.team.roles import Visibility
from torchyard.host.tls import Tls, given, own

_SENDFILE = re.compile(r"(x-sendfile|x-accel-redirect:/[A-Za-z0-9._/-]+)?")
_JOB_ORIGINS = re.compile(r"https?://\*\.[a-z0-9][a-z0-9.-]{0,200}(:[0-9]{1,5})?")
_HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9._-]+")


def _host_names(value: str) -> str:
    for name in _split(value):
        if _HOST_NAME.fullmatch(name) is None:
            raise ValueError(
                f"{name!r} is not a host name: write names such as torchyard.example.com, without scheme or port"
            )
    return value


def _job_origins(value: str) -> str:
    if value and _JOB_ORIGINS.fullmatch(value) is None:
        raise ValueError(f"write an address with one `*`, such as https://*.jobs.example.com, not {value!r}")
    return value


def _sendfile(value: str) -> str:
    if _SENDFILE.fullmatch(value) is None:
        raise ValueError(f"use x-sendfile, x-accel-redirect:/LOCATION, or nothing, not {value!r}")
    return value


def _networks(value: str) -> str:
    for text in _split(value):
        try:
            ip_network(text)
        except ValueError as error:
            raise ValueError(
                f"{text!r} is not an address or a network ({error}): write for example 127.0.0.1 or 10.0.0.0/8"
            ) from None
    return value


def _split(names: str) -> list[str]:
    return [name.strip().lower() for name in names.split(",") if name.strip()]


class Settings(LimitSettings, OutputSettings, settings.PublicAddress, settings.Settings):
    """How the API serves. Extends `store.settings.Settings`."""

    token: SecretStr | None = None
    """The token of the bootstrap administrator, `admin`."""
    visibility: Visibility = "private"
    """Default visibility of jobs."""
    exec_by_operators: bool = False
    """Whether operators and administrators may reach into the running jobs of others."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    api_processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that serve the address together."""
    allowed_hosts: Annotated[str, AfterValidator(_host_names)] = ""
    """Host names, separated by `,`, that requests may name besides this machine's own; also `*.example.com` and `*`."""
    job_origins: Annotated[str, AfterValidator(_job_origins)] = ""
    """The address of the host names for terminals and ports of jobs, such as `https://*.jobs.example.com`, all of which
    lead to this service. Without it they are below `localhost`, for who opens the page by a name of this machine."""
    sendfile: Annotated[str, AfterValidator(_sendfile)] = ""
    """How a proxy in front of the API sends files instead of it: `x-sendfile`, or `x-accel-redirect:/LOCATION`."""
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Addresses and networks of the proxies, separated by `,`, whose `X-Forwarded-For` names the client."""

    tls: bool = False
    """Whether it speaks HTTPS with a certificate of its own, which is made and kept in the data directory."""
    tls_certificate: Path | None = None
    """The file with another certificate, and with those of its issuers, as PEM: it speaks HTTPS with that."""
    tls_key: Path | None = None
    """The file with its key."""

    @property
    def tls_files(self) -> Tls | None:
        """The certificate with which it speaks HTTPS; None: it speaks HTTP. Raises ConfigError."""
        return given(self.tls_certificate, self.tls_key) or (own(self.root) if self.tls else None)

    @property
    def host_names(self) -> frozenset[str]:
        return frozenset(_split(self.allowed_hosts))

    @cached_property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(map(ip_network, _split(self.trusted_proxies)))
