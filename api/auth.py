"""Authenticates requests, and decides which jobs a user may see."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.address import client_address, host_of
from api.services import ServicesDep
from store.db.database import Session
from store.db.tables import Job
from store.ids import is_id
from store.rows import jobs
from torchyard.contract.errors import NotAuthorized, NotFound


@dataclass(frozen=True)
class Principal:
    """The user behind a request."""

    name: str
    admin: bool = False

    @property
    def sees(self) -> str | None:
        """The owner whose jobs the user may see; None for all jobs."""
        return None if self.admin else self.name


ADMIN = Principal("admin", admin=True)

_bearer = HTTPBearer(auto_error=False, description="The token that `torchyard up` printed.")


async def authenticate(
    request: Request,
    services: ServicesDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Principal:
    """Returns the user whose token the request has. Raises NotAuthorized and TooManyRequests."""
    if credentials is None:
        raise NotAuthorized("send the header `Authorization: Bearer TOKEN`")
    if not hmac.compare_digest(credentials.credentials.encode(), services.token.encode()):
        address = client_address(request.scope, services.settings)
        services.wrong_tokens.take(host_of(address), advice=f"{address} has sent too many wrong tokens")
        raise NotAuthorized("the token is not valid")
    services.requests.take(ADMIN.name, advice="this token has sent too many requests")
    return ADMIN


User = Annotated[Principal, Depends(authenticate)]
"""A route's parameter: the user who sent the request."""


async def open_stream(services: ServicesDep, user: User) -> AsyncGenerator[None]:
    """A route's dependency: counts the answer among the user's streams until it ends. Raises TooManyRequests."""
    with services.streams.open(user.name):
        yield


async def _job_id(job_id: str) -> str:
    """Raises NotFound if the text is not a job's id."""
    if not is_id(job_id, "job"):
        raise NotFound(f"there is no job {job_id[:100]!r}")
    return job_id


JobId = Annotated[str, Depends(_job_id)]
"""A route's parameter: a well-formed job id."""


def visible_job(session: Session, job_id: str, user: Principal) -> Job:
    """Returns the job if `user` may see it. Raises NotFound, also for a malformed id."""
    if not is_id(job_id, "job"):
        raise NotFound(f"there is no job {job_id[:100]!r}")
    return jobs.get(session, job_id, owner=user.sees)
