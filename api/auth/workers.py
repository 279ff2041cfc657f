"""Authenticates remote workers, by their tokens. Such a token opens what is below `/v1/worker` alone."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from api.auth.access import Access, AccessDep
from api.auth.callers import Credentials, count_failed_login
from store.cluster import worker_tokens
from torchyard.contract.errors import NotAuthorized


@dataclass(frozen=True)
class RemoteWorker:
    """A worker whose token is valid."""

    worker_id: str
    token: str = field(repr=False)

    @property
    def key(self) -> str:
        """The key of the worker's limits."""
        return self.worker_id


async def authenticate_worker(request: Request, access: AccessDep, credentials: Credentials) -> RemoteWorker:
    """Returns the worker that makes the request. Raises NotAuthorized, TooManyRequests and Unavailable."""
    if credentials is None:
        raise NotAuthorized("send the header `Authorization: Bearer TOKEN`, with the token of a worker")
    worker_id = await access.at_once(find_worker, access, credentials.credentials)
    if worker_id is None:
        await count_failed_login(access, request, what="tokens")
        raise NotAuthorized("the token of this worker is not valid: the worker was removed, or has joined again")
    await access.requests.take(worker_id, advice=f"{worker_id} has sent too many requests")
    return RemoteWorker(worker_id, credentials.credentials)


authenticate_worker.scope = "worker"  # pyright: ignore[reportFunctionMemberAccess] - a test reads it

WorkerDep = Annotated[RemoteWorker, Depends(authenticate_worker)]
"""A route's parameter: the remote worker that makes the request."""


def find_worker(access: Access, token: str) -> str | None:
    """Returns the id of the worker whose token this is. Raises Unavailable."""
    with access.store.read() as session:
        return worker_tokens.find_worker(session, token)
