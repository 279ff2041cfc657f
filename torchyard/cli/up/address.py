"""The address of the API of `torchyard up`: whether it is free, how it is written, and whether it answers."""

from __future__ import annotations

import errno
import json
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from torchyard.contract.errors import ConfigError, Conflict

if TYPE_CHECKING:
    from http.client import HTTPConnection


def free_port(host: str, port: int) -> int:
    """Returns a free port, or `port` if that is not 0. Raises Conflict if it is taken, and ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as probe:
            return probe.getsockname()[1]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} is taken: choose another with --port, TORCHYARD_PORT or `make up PORT=…` (0: a free one)"
            ) from None
        raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None


def connectable(host: str) -> str:
    """Returns the address at which a server that listens on `host` can be reached from here."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def authority(host: str, port: int) -> str:
    """Returns both as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connection(url: str, certificate: str | None, *, timeout_s: float) -> HTTPConnection:
    """Returns a connection to the service at `url`, for one request. `certificate`: the only one that it may have."""
    from http.client import HTTPConnection, HTTPSConnection  # while the API loads

    from torchyard.host import trust

    address = urlsplit(url)
    if certificate is None:
        return HTTPConnection(address.netloc, timeout=timeout_s)
    return HTTPSConnection(address.netloc, timeout=timeout_s, context=trust.context(certificate))


def ready(url: str, certificate: str | None) -> bool:
    """Returns whether the API says that it is ready."""
    from http import HTTPStatus
    from http.client import HTTPException

    asked = connection(url, certificate, timeout_s=2)
    try:
        asked.request("GET", "/readyz")
        answer = asked.getresponse()
        return answer.status == HTTPStatus.OK and json.loads(answer.read())["status"] == "ok"
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return False
    finally:
        asked.close()
