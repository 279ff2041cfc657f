"""Completes names and ids of jobs and sweeps in a shell. Offers none, and no error, if the server is slow or away."""

from typing import Any

_TIMEOUT_S = 1.0
_NEWEST = 100


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
    from contextlib import closing
    import http.client
    import json
    from urllib.parse import urlsplit

    from torchyard.client.discovery import discover

    server = discover()
    address = urlsplit(server.url)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.netloc, timeout=_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {server.token}"}
    with closing(connection):
        connection.request("GET", f"{address.path}/v1/{path}?limit={_NEWEST}", headers=headers)
        return json.load(connection.getresponse())["data"]
