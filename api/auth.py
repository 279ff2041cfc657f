"""Who asks, and what they may see."""

from dataclasses import dataclass
import hmac
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.services import Parts
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
        """The owner whose objects they see; None for everybody's."""
        return None if self.admin else self.name


ADMIN = Principal("admin", admin=True)

_bearer = HTTPBearer(auto_error=False, description="The token that `torchyard up` printed.")


async def authenticate(
    parts: Parts, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Raises NotAuthorized."""
    if credentials is None:
        raise NotAuthorized("send the header `Authorization: Bearer TOKEN`")
    if not hmac.compare_digest(credentials.credentials.encode(), parts.token.encode()):
        raise NotAuthorized("the token is not valid here")
    return ADMIN


User = Annotated[Principal, Depends(authenticate)]
"""A route's parameter: who asks."""


async def _job_id(job_id: str) -> str:
    """Raises NotFound for what is no job's id."""
    if not is_id(job_id, "job"):
        raise NotFound(f"there is no job {job_id[:100]!r}")
    return job_id


JobId = Annotated[str, Depends(_job_id)]
"""A route's parameter: an id that a job may have."""


def visible_job(session: Session, job_id: str, user: Principal) -> Job:
    """The job, if `user` may see it. Raises NotFound, for a malformed id too."""
    if not is_id(job_id, "job"):
        raise NotFound(f"there is no job {job_id[:100]!r}")
    return jobs.get(session, job_id, owner=user.sees)
