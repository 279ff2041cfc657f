"""Completes names and ids of jobs and sweeps in a shell. Offers none, and no error, if the server is slow or away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

_TIMEOUT_S = 1.0
_NEWEST = 100
_MOST_BYTES = 4 << 20


def job_names(incomplete: str) -> list[tuple[str, str]]:
    """Returns the newest jobs whose name or id starts with `incomplete`, each with a description."""
    return _names(incomplete, kind="job_", path="jobs")


def sweep_names(incomplete: str) -> list[tuple[str, str]]:
    """Returns the newest sweeps whose name or id starts with `incomplete`, each with a description."""
    return _names(incomplete, kind="swp_", path="sweeps")


def _names(incomplete: str, *, kind: str, path: str) -> list[tuple[str, str]]:
    try:
        listed = _newest(path)
    except Exception:  # noqa: BLE001 - the user is typing a command, and must see no error
        return []
    key, other = ("id", "name") if incomplete.startswith(kind) else ("name", "id")
    found: dict[str, str] = {}
    for item in listed:
        if item[key].startswith(incomplete):
            found.setdefault(item[key], f"{item['state']}, {item[other]}")
    return [*found.items()]


def _newest(path: str) -> list[dict[str, Any]]:
    # The client takes too long to import for each press of the Tab key.
    import json
    from urllib.parse import urlsplit

    from torchyard.client.discovery import discover

    server = discover()
    address = urlsplit(server.url)
    headers = {"Authorization": f"Bearer {server.token}"}
    asked = f"{address.path}/v1/{path}?limit={_NEWEST}"
    answer = _answer_by_tls if address.scheme == "https" else _answer
    return json.loads(answer(address, asked, headers))["data"]


def _answer_by_tls(address: SplitResult, path: str, headers: Mapping[str, str]) -> bytes:
    from contextlib import closing
    import http.client

    with closing(http.client.HTTPSConnection(address.netloc, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().read(_MOST_BYTES)


def _answer(address: SplitResult, path: str, headers: Mapping[str, str]) -> bytes:
    """Asks by HTTP/1.0, whose answer ends with the connection: http.client takes longer to import than all of this."""
    import socket

    host: Any = (address.hostname or "").encode("ascii")  # as text it would import encodings.idna
    head = [f"GET {path} HTTP/1.0", f"Host: {address.netloc}", *(f"{name}: {text}" for name, text in headers.items())]
    found = b""
    with socket.create_connection((host, address.port or 80), timeout=_TIMEOUT_S) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode("ascii"))
        while len(found) < _MOST_BYTES and (part := connection.recv(65536)):
            found += part
    return found.partition(b"\r\n\r\n")[2]
