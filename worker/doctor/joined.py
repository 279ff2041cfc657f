"""Checks what a machine needs that has joined the service of another one: each line says what fails."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
import socket
import ssl
import time
from urllib.parse import urlsplit

from torchyard.contract.errors import ConfigError, ServerUnreachable
from torchyard.contract.wire.version import HEADER, own_version, works_with
from torchyard.host import trust
from torchyard.host.joined import JOINED_FILE, Joined, known, ssl_context
from worker.doctor.findings import Finding, failed, ok, warning

_TIMEOUT_S = 10.0
_MOST_SKEW_S = 60.0
_MOST_BYTES = 65_536
_DATE = "%a, %d %b %Y %H:%M:%S GMT"
_AGAIN = "an administrator prints a new line for this machine with `torchyard workers add NAME`"


@dataclass(frozen=True)
class _Answer:
    """What the service answers to who asks which worker a token is of."""

    status: int
    version: str
    date: str | None


def has_joined(data_dir: Path) -> bool:
    """Whether the worker of the data directory has joined the service of another machine."""
    return (data_dir / JOINED_FILE).exists()


def check_joined(data_dir: Path, *, now: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Checks the way to the service: its name, its port, its certificate, and then clock, version and token.

    It ends where nothing that follows could succeed.
    """
    try:
        joined = known(data_dir)
    except ConfigError as error:
        yield failed("joined", error.message, _AGAIN)
        return
    proxy = trust.proxy_of(joined.url)
    if proxy is None:
        for finding in _check_way(joined.url):
            yield finding
            if finding.advice:
                return
    else:
        yield ok("proxy", f"{joined.url} is reached by {trust.shown_proxy(proxy)}, as HTTPS_PROXY says")
    finding = _check_certificate(joined)
    yield finding
    if finding.advice:
        return
    try:
        answer = _ask(joined)
    except (OSError, HTTPException) as error:
        yield failed("service", f"it does not answer: {error}", "see the log of the API on its machine")
        return
    yield from _check_answer(joined, answer, now=now())


def _check_way(url: str) -> Iterator[Finding]:
    """Checks the name and the port."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 443
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield failed("name", f"{host} has no address: {error}", "check the name in DNS or /etc/hosts of this machine")
        return
    yield ok("name", f"{host} is {', '.join(sorted({str(each[4][0]) for each in found}))}")
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError as error:
        advice = "does the service run, listen with `--host 0.0.0.0`, and does a firewall let this machine through?"
        yield failed("port", f"port {port} of {host} cannot be reached: {error}", advice)
        return
    yield ok("port", f"port {port} answers")


def _check_certificate(joined: Joined) -> Finding:
    try:
        with closing(trust.connection(joined.url, ssl_context(joined), timeout_s=_TIMEOUT_S)) as opened:
            opened.connect()
            version = opened.sock.version()
    except ssl.SSLCertVerificationError as error:
        return failed("certificate", _other_certificate(joined, error.verify_message), f"if that is right: {_AGAIN}")
    except (OSError, HTTPException, ConfigError) as error:
        return failed("certificate", f"TLS fails: {error}", "is it the port of a service that speaks HTTPS?")
    how = "its authority is trusted" if joined.certificate is None else "it is the one of the code"
    return ok("certificate", f"{how}, {version}")


def _other_certificate(joined: Joined, why: str) -> str:
    if joined.certificate is None:
        return f"the certificate is not trusted: {why}"
    try:
        shown = trust.shown(trust.fingerprint(trust.fetch_certificate(joined.url)))
    except ServerUnreachable as error:
        return error.message
    wanted = trust.shown(trust.fingerprint(joined.certificate))
    return f"the certificate was replaced ({why}): its SHA-256 is {shown}, the code has {wanted}"


def _ask(joined: Joined) -> _Answer:
    connection = trust.connection(joined.url, ssl_context(joined), timeout_s=_TIMEOUT_S)
    try:
        connection.request("GET", "/v1/worker", headers={"Authorization": f"Bearer {joined.token}"})
        answer = connection.getresponse()
        answer.read(_MOST_BYTES)
    finally:
        connection.close()
    return _Answer(answer.status, answer.headers.get(HEADER, ""), answer.headers.get("Date"))


def _check_answer(joined: Joined, answer: _Answer, *, now: float) -> Iterator[Finding]:
    theirs, ours = answer.version, own_version()
    try:
        skew = (
            None if answer.date is None else now - datetime.strptime(answer.date, _DATE).replace(tzinfo=UTC).timestamp()
        )
    except ValueError:
        skew = None
    if skew is not None and abs(skew) > _MOST_SKEW_S:
        how = "ahead of" if skew > 0 else "behind"
        yield failed("clock", f"this machine's is {abs(skew):.0f} s {how} the service's", "set the clock, as NTP does")
    elif skew is not None:
        yield ok("clock", "as that of the service")
    if not works_with(theirs, ours):
        yield failed("version", f"this machine has {ours}, and the service {theirs}", "run `torchyard workers update`")
    elif theirs != ours:
        advice = "they work together; `torchyard workers update` brings this machine to that of the service"
        yield warning("version", f"this machine has {ours}, and the service {theirs}", advice)
    else:
        yield ok("version", f"{ours}, as the service")
    if answer.status == HTTPStatus.OK:
        yield ok("token", f"this machine is {joined.name}")
    elif answer.status == HTTPStatus.UNAUTHORIZED:
        yield failed("token", f"the service does not know the token of {joined.name}: it was removed", _AGAIN)
    else:
        yield failed("token", f"the service answers {answer.status}", "see the log of the API on its machine")
