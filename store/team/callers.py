"""Who asks, and which jobs they may see. `store.team.access` has the same rules as conditions of queries."""

from dataclasses import dataclass
from typing import Protocol

from torchyard.contract.team.roles import Role


@dataclass(frozen=True)
class Caller:
    """Who makes a request, as the audit records it."""

    name: str
    role: Role
    token_id: str | None = None
    """None for the bootstrap administrator's token."""
    address: str = ""
    request_id: str = ""


BOOTSTRAP = "admin"
"""The name of the administrator whose token is the setting TORCHYARD_TOKEN."""
SERVICE = Caller(BOOTSTRAP, Role.ADMIN)
"""A caller who may read and change every job."""


class Owned(Protocol):
    """A job, or what is known of it."""

    @property
    def owner(self) -> str: ...
    @property
    def visibility(self) -> str: ...


def may_read(caller: Caller, job: Owned) -> bool:
    """Returns whether the caller may read the job: spec, events, metrics, logs and checkpoints."""
    return caller.role is Role.ADMIN or job.owner == caller.name or job.visibility == "team"


def may_list(caller: Caller, job: Owned) -> bool:
    """Returns whether the job is in the caller's lists. One that is not is shown by owner, state and devices."""
    return lists_unreadable(caller) or may_read(caller, job)


def lists_unreadable(caller: Caller) -> bool:
    """Returns whether the caller's lists have jobs that the caller may not read."""
    return caller.role is Role.OPERATOR
