"""Authenticates remote workers: each has a token of its own, which is no user's."""

from typing import Annotated

from fastapi import Depends, Request

from api.auth.access import Access, AccessDep
from api.auth.callers import Credentials, count_wrong_token
from store.cluster import worker_tokens
from torchyard.contract.errors import NotAuthorized


async def authenticate_worker(request: Request, access: AccessDep, credentials: Credentials) -> str:
    """Returns the id of the worker whose token the request has. A wrong one is counted as a user's is.

    Raises NotAuthorized, TooManyRequests and Unavailable.
    """
    if credentials is None:
        raise NotAuthorized("send the header `Authorization: Bearer TOKEN`")
    worker_id = await access.at_once(find_worker, access, credentials.credentials)
    if worker_id is None:
        await count_wrong_token(request, access)
        raise NotAuthorized("the token is not valid: it is unknown, or its worker was removed")
    return worker_id


RemoteWorker = Annotated[str, Depends(authenticate_worker)]
"""A route's parameter: the id of the remote worker that makes the request."""


def find_worker(access: Access, token: str) -> str | None:
    """Returns the id of the worker whose token this is. Raises Unavailable."""
    with access.store.read() as session:
        return worker_tokens.find_worker(session, token)
