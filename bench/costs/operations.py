"""Measures the largest request of each operation in the process of the API."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from bench.costs.largest import Document, Schema
from bench.service import Service
from torchyard.contract.spec.spec import MOST_SPEC_BYTES
from torchyard.contract.team.requests import MOST_PREFERENCES_BYTES

MOST_S = 0.25
"""The most CPU seconds of a request in a thread that others share."""
ENDLESS = frozenset({"stream_job", "stream_jobs"})
"""Streams that go on until the client leaves: only their first bytes count."""
_MANY = frozenset({"submit_batch", "submit_sweep"})
"""They store many jobs, and are sent late so that other answers do not contain these."""
LAST = frozenset({"close_session", "end_session", "revoke_token", "rotate_secrets"})
_BODY_BYTES = {"keep_preferences": MOST_PREFERENCES_BYTES}
_QUERY_BYTES = 7000
_MIB = 2**20


@dataclass(frozen=True)
class Cost:
    """The CPU seconds of one request, and the memory by which the process grew meanwhile."""

    operation: str
    sent: int
    """Bytes of the body, or of the path where there is none."""
    status: int
    processor_s: float
    memory_mib: float
    answered: int
    """Bytes of the answer's body."""


def measure(
    service: Service, document: Document, places: Mapping[str, str], *, accepted: Mapping[str, bytes]
) -> Iterator[Cost]:
    """Sends the largest request of each operation. `places` are the values of parameters of paths.

    `accepted`: bodies, where the largest by the description would be refused.
    """
    operations = [*document.operations()]
    operations.sort(key=lambda item: _turn(item[2]["operationId"], item[0]))
    for method, path, operation in operations:
        name = operation["operationId"]
        body, most = document.body(operation), _BODY_BYTES.get(name, MOST_SPEC_BYTES)
        content = accepted.get(name) or (b"" if body is None else _largest(document, body, most=most))
        target = _filled(path, places) + _query(document, operation)
        yield _cost(service, operation, method, target, content)


def _turn(operation: str, method: str) -> int:
    """Returns when to send the request: none takes away what another one needs."""
    if operation in LAST:
        return 4
    if operation in _MANY:
        return 3
    return 2 if method == "delete" else int(operation != "extend_sweep")


def _largest(document: Document, body: Schema, *, most: int) -> bytes:
    room = most
    while len(content := json.dumps(document.largest(body, room=room)).encode()) > most:
        room = room * 3 // 4
    return content


def _filled(path: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


def _query(document: Document, operation: Mapping[str, Any]) -> str:
    """Returns a query that asks for as much as the operation admits."""
    asked: list[tuple[str, str]] = []
    for parameter in document.parameters(operation):
        if parameter["in"] == "query" and parameter["name"] in {"limit", "max_points", "smooth_points", "days", "tail"}:
            asked.append((parameter["name"], str(document.largest(parameter["schema"], room=100))))
        elif parameter["in"] == "query" and parameter.get("required"):
            found = document.largest(parameter["schema"], room=_QUERY_BYTES)
            asked += [(parameter["name"], str(value)) for value in (found if isinstance(found, list) else [found])]
    return f"?{urlencode(asked)}"[:_QUERY_BYTES] if asked else ""


def _cost(service: Service, operation: Mapping[str, Any], method: str, target: str, content: bytes) -> Cost:
    pid, name = service.pids["api"], operation["operationId"]
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
    held, used = _memory(pid, "VmRSS"), _processor_s(pid)
    headers = {"Authorization": f"Bearer {service.token}", "Accept-Encoding": "gzip"}
    headers |= {"Content-Type": "application/json"} if content else {}
    with closing(HTTPConnection(*service.address, timeout=600)) as connection:
        connection.request(method.upper(), target, body=content or None, headers=headers)
        answer = connection.getresponse()
        body = answer.read1() if name in ENDLESS else answer.read()
    return Cost(
        operation=name,
        sent=len(content) or len(target),
        status=answer.status,
        processor_s=_processor_s(pid) - used,
        memory_mib=max(0.0, (_memory(pid, "VmHWM") - held) / _MIB),
        answered=len(body),
    )


def _memory(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def _processor_s(pid: int) -> float:
    """Returns what all threads have used, to the nanosecond: the kernel counts in hundredths elsewhere."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
