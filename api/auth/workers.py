"""Authenticates remote workers: each has a token of its own, which is no user's."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.auth.access import Access, AccessDep
from api.auth.callers import Credentials, count_wrong_token
from store.cluster import worker_tokens
from store.cluster.worker_tokens import TokenUse
from store.worker.wire import BOOT_HEADER, PROTOCOL, PROTOCOL_HEADER
from torchyard.contract.errors import Conflict, InvalidRequest, NotAuthorized
from torchyard.contract.wire.version import HEADER, UNKNOWN, gap, own_version

_LONGEST_BOOT = 64
_UPDATE = "run `torchyard workers update` on its machine"


@dataclass(frozen=True)
class Sender:
    """The worker that sends a verb, and the boot of its host."""

    worker_id: str
    boot: str
    token: str
    is_registered: bool
    """Whether it is the host that has registered."""


async def authenticate_worker(request: Request, access: AccessDep, credentials: Credentials) -> str:
    """Returns the id of the worker whose token the request has. A wrong one is counted as a user's is.

    Raises NotAuthorized, TooManyRequests and Unavailable.
    """
    return (await _identify(request, access, credentials))[0].worker_id


async def authenticate_sender(request: Request, access: AccessDep, credentials: Credentials) -> Sender:
    """Returns which worker sends the verb, from which host.

    Raises what `authenticate_worker` does, Conflict for another version of the protocol, and InvalidRequest.
    """
    used, token = await _identify(request, access, credentials)
    spoken = request.headers.get(PROTOCOL_HEADER, "")
    if spoken != PROTOCOL:
        raise Conflict(f"the service uses worker protocol {PROTOCOL}, this worker {spoken[:20]!r}: {_UPDATE}")
    boot = request.headers.get(BOOT_HEADER, "")
    if not 0 < len(boot) <= _LONGEST_BOOT:
        raise InvalidRequest(f"send the header `{BOOT_HEADER}`")
    return Sender(used.worker_id, boot, token, is_registered=used.boot == boot)


def find_use(access: Access, token: str) -> TokenUse | None:
    """Returns whose token it is. Raises Unavailable."""
    with access.store.read() as session:
        return worker_tokens.find_use(session, token)


def is_used_by(access: Access, sender: Sender) -> bool:
    """Returns whether the token is still valid, and of the same host. Raises Unavailable."""
    return find_use(access, sender.token) == TokenUse(sender.worker_id, sender.boot)


async def _identify(request: Request, access: Access, credentials: Credentials) -> tuple[TokenUse, str]:
    if credentials is None:
        raise NotAuthorized("send the header `Authorization: Bearer TOKEN`")
    used = await access.at_once(find_use, access, credentials.credentials)
    if used is None:
        await count_wrong_token(request, access)
        raise NotAuthorized("the token is not valid: it is unknown, or its worker was removed")
    return used, credentials.credentials


def check_version(request: Request) -> None:
    """Raises Conflict if the worker is not of this version, or of the minor version before or after."""
    theirs = request.headers.get(HEADER, UNKNOWN)
    if (why := gap(theirs, own_version())) is not None:
        raise Conflict(f"{why}: {_UPDATE}")


async def _registered(sender: Annotated[Sender, Depends(authenticate_sender)]) -> Sender:
    if not sender.is_registered:
        raise Conflict("another host uses the token of this worker, or it has not registered yet")
    return sender


RemoteWorker = Annotated[str, Depends(authenticate_worker)]
"""A route's parameter: the id of the remote worker that makes the request."""
AnyHost = Annotated[Sender, Depends(authenticate_sender)]
"""A parameter of the route by which a worker registers: it may be on another host than before."""
RegisteredWorker = Annotated[Sender, Depends(_registered)]
"""A parameter of the routes of all other verbs: the worker, on the host that has registered."""
