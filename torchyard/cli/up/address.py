"""The address of the API of `torchyard up`: whether it is free, how it is written, and whether it answers."""

import errno
import json
import socket

from torchyard.contract.errors import ConfigError, Conflict


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


def ready(host: str, port: int) -> bool:
    """Returns whether the API says that it is ready."""
    import http.client  # while the API loads

    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status == http.HTTPStatus.OK and json.loads(answer.read())["status"] == "ok"
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return False
    finally:
        connection.close()
