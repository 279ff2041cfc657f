"""Authenticates remote workers: each has a token of its own, which speaks for nothing else."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.auth.access import Access, AccessDep
from api.auth.callers import count_wrong_token
from store.cluster import worker_tokens
from store.cluster.worker_tokens import TokenUse
from store.worker.wire import BOOT_HEADER, PROTOCOL, PROTOCOL_HEADER
from torchyard.contract.errors import Conflict, InvalidRequest, NotAuthorized

_LONGEST_BOOT = 64


@dataclass(frozen=True)
class Sender:
    """The worker that sends a request, and the boot of its host."""

    worker_id: str
    boot: str
    token: str
    is_registered: bool
    """Whether it is the host that has registered."""


async def authenticate_worker(request: Request, access: AccessDep) -> Sender:
    """Returns which worker sends the request, from which host.

    Raises NotAuthorized for a token that is unknown or revoked, Conflict for another version of the protocol,
    InvalidRequest, TooManyRequests and Unavailable.
    """
    spoken = request.headers.get(PROTOCOL_HEADER, "")
    if spoken != PROTOCOL:
        raise Conflict(
            f"this service speaks version {PROTOCOL} of the protocol of workers, and this worker {spoken[:20]!r}:"
            " give both the same version of Torchyard"
        )
    boot = request.headers.get(BOOT_HEADER, "")
    if not 0 < len(boot) <= _LONGEST_BOOT:
        raise InvalidRequest(f"send the header `{BOOT_HEADER}`")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    used = await access.at_once(find_use, access, token) if scheme.lower() == "bearer" else None
    if used is None:
        await count_wrong_token(request, access)
        raise NotAuthorized("the service does not know this worker, or has removed it: join again")
    return Sender(used.worker_id, boot, token, is_registered=used.boot == boot)


def find_use(access: Access, token: str) -> TokenUse | None:
    """Returns whose token it is. Raises Unavailable."""
    with access.store.read() as session:
        return worker_tokens.find_use(session, token)


async def _registered(sender: Annotated[Sender, Depends(authenticate_worker)]) -> Sender:
    if not sender.is_registered:
        raise Conflict("another host uses the token of this worker, or it has not registered yet")
    return sender


AnyHost = Annotated[Sender, Depends(authenticate_worker)]
"""A parameter of the route by which a worker registers: it may be on another host than before."""
RegisteredWorker = Annotated[Sender, Depends(_registered)]
"""A parameter of all other routes: the worker, on the host that has registered."""
