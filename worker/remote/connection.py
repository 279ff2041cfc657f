"""Sends each verb to the service as one HTTPS request, and raises an error answer as the exception of its code."""

import logging
import ssl
from typing import Any, TypeVar

import httpx2

from store.worker.wire import BOOT_HEADER, PROTOCOL, PROTOCOL_HEADER, Asked, Verb
from torchyard.contract.errors import (
    Conflict,
    NotAuthorized,
    NotFound,
    ServerError,
    StaleClaim,
    TorchyardError,
    Unavailable,
)
from torchyard.contract.wire.text import printable
from torchyard.contract.wire.version import HEADER, own_version
from torchyard.host import trust
from worker.outage import Outage

A = TypeVar("A", bound=Asked)
T = TypeVar("T")

PATIENT_S = 60.0
"""Longest wait for an answer: a database may hold up a write for so long."""
QUICK_S = 10.0
_CONNECT_S = 5.0
_MOST_CONNECTIONS = 32
IDLE_S = 12.0
"""For so long an idle connection is kept: over the next heartbeat, but shorter than the service keeps it."""
_LONGEST = 1000
_RAISED: dict[str, type[TorchyardError]] = {
    kind.code: kind for kind in (Conflict, NotAuthorized, NotFound, StaleClaim, Unavailable)
}
logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of each request
_PASSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


class Connection:
    """Threads may share it. Connects to nothing until it is used."""

    def __init__(self, url: str, *, token: str, boot: str, context: ssl.SSLContext) -> None:
        """`boot`: that of this host. `context`: what checks the certificate of the service."""
        self.http = httpx2.Client(
            base_url=url,
            verify=context,
            trust_env=not trust.is_local(url),  # a proxy that the environment names
            headers={
                "Authorization": f"Bearer {token}",
                PROTOCOL_HEADER: PROTOCOL,
                HEADER: own_version(),
                BOOT_HEADER: boot,
            },
            timeout=httpx2.Timeout(PATIENT_S, connect=_CONNECT_S),
            limits=httpx2.Limits(
                max_connections=_MOST_CONNECTIONS,
                max_keepalive_connections=_MOST_CONNECTIONS,
                keepalive_expiry=IDLE_S,
            ),
        )
        """For what is no verb: the stream of wake-ups, and blobs."""
        self.outage = Outage(
            meanwhile="jobs go on, and what they write is sent later", over="the service answers again"
        )

    def call(self, verb: Verb[A, T], asked: A, *, timeout_s: float = PATIENT_S) -> T:
        """Returns the answer. Raises Unavailable where the same call may succeed later, and what the verb raises."""
        body = asked.model_dump_json().encode()
        timeout = httpx2.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            response = self.http.post(
                verb.path, content=body, headers={"Content-Type": "application/json"}, timeout=timeout
            )
        except httpx2.TransportError as error:
            raise self.outage.note(unreachable(error)) from None
        error = None if response.status_code == httpx2.codes.OK else error_of(response)
        if isinstance(error, Unavailable):
            raise self.outage.note(error)
        self.outage.end()
        if error is not None:
            raise error
        try:
            return verb.answered.model_validate_json(response.content).answer
        except ValueError as error:
            raise ServerError(f"the service answers {verb.name} with what this version cannot read: {error}") from None

    def close(self) -> None:
        self.http.close()


def unreachable(error: Exception) -> Unavailable:
    """Returns the error of a service that does not answer."""
    return Unavailable(f"the service does not answer: {printable(str(error) or type(error).__name__)[:_LONGEST]}")


def error_of(response: httpx2.Response) -> TorchyardError:
    """Returns the error that an answer stands for. Its content is read."""
    try:
        problem: Any = response.json()
    except ValueError:  # a proxy has answered
        problem = {}
    known = problem if isinstance(problem, dict) else {}
    text = printable(str(known.get("detail") or f"the service answered {response.status_code}"))[:_LONGEST]
    if response.status_code in _PASSES:
        return Unavailable(text)
    errors = known.get("errors")
    if isinstance(errors, list) and errors:
        text += f": {printable(str(errors[0]))[:_LONGEST]}"
    return _RAISED.get(str(known.get("code")), ServerError)(text)
