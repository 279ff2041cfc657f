"""Prints the line that an administrator hands over, to be pasted into the shell of another machine."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from torchyard.cli import output
from torchyard.contract.installs import INSTALL, WHEEL_NAME
from torchyard.host import terminal
from torchyard.host.listening import is_loopback

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.team.codes import JoinCode
    from torchyard.contract.team.views import NewCodeView


def checked(made: NewCodeView) -> JoinCode:
    """Returns the code that a server has made. Raises ServerError if it is none: the line is pasted into a shell."""
    from torchyard.contract.errors import InvalidRequest, ServerError
    from torchyard.contract.team.codes import parse_code

    try:
        return parse_code(made.code)
    except InvalidRequest:
        raise ServerError(f"the server sent an invalid code: {made.code[:200]!r}") from None


def address(client: Client, made: NewCodeView, wanted: str | None) -> str:
    """Returns the address of the service for the other machine: the wanted one, else the one by which this machine
    reaches it, else the one that it names. Raises ConfigError if there is none, or it is not HTTPS.
    """
    from torchyard.client.joining import address_of
    from torchyard.contract.errors import ConfigError

    own = client.server.url
    known = made.url if is_loopback(urlsplit(own).hostname or "") else own
    if wanted is None and known is None:
        raise ConfigError(
            f"{own} is reachable only from this machine: start the service with `up --host 0.0.0.0 "
            "--tls`, or give its address with --url https://HOST:PORT"
        )
    return address_of(wanted or known or "")


def installing(made: NewCodeView, code: JoinCode, address: str, *, with_pip: bool) -> str:
    """Returns the beginning of a line that runs the service's own client, whose digest is in it, on a machine that has
    uv, or Python alone. Until the wheel is there, its digest and not the certificate says that it is the right one.
    """
    from torchyard.contract.errors import ServerError

    wheel, host = made.wheel, urlsplit(address).netloc
    if not (re.fullmatch(WHEEL_NAME, wheel.name) and re.fullmatch(r"[0-9a-f]{64}", wheel.sha256)):
        raise ServerError(f"the server sent an invalid name of a wheel: {wheel.name[:200]!r}")
    file = f"'{address}{INSTALL}/{wheel.sha256}/{wheel.name}#sha256={wheel.sha256}'"
    if with_pip:
        unverified = f"--trusted-host {shlex.quote(host)} " if code.fingerprint else ""
        place = "~/.local/share/torchyard-client"
        return f"python3 -m venv {place} && {place}/bin/pip install -q {unverified}{file} && {place}/bin/torchyard"
    unverified = f"--allow-insecure-host {shlex.quote(host)} " if code.fingerprint else ""
    return f"uvx {unverified}--from {file} torchyard"


def show(made: NewCodeView, line: str, *, who: str, as_json: bool) -> None:
    """Prints the line alone on stdout, and what to do with it on stderr."""
    if as_json:
        output.show({**made.model_dump(mode="json"), "line": line}, [], as_json=True)
        return
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    until = output.moment(made.expires_at)
    terminal.note(f"Run this {who}. It works once, until {until}. Keep it secret.")
