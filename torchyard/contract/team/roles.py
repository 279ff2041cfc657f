"""Who may do what: roles, the scopes of tokens, visibility of jobs, and what quotas limit."""

from enum import StrEnum
from typing import Literal

Visibility = Literal["private", "team"]
"""`team`: every user of the server may read the job. `private`: its owner and administrators."""


class Scope(StrEnum):
    """A scope of a token. Each route needs one scope."""

    ACCOUNT = "account"
    """Ask who one is. Every token has it."""
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    JOBS_EXEC = "jobs:exec"
    """Start programs inside one's own running jobs, and connect to what they listen on. A token has it, and a browser's
    session, only if that is asked for."""
    CLUSTER_READ = "cluster:read"
    """See workers, devices and the queue."""
    CLUSTER_WRITE = "cluster:write"
    """Drain workers."""
    FIGURES_READ = "figures:read"
    """Read the metrics of the whole service."""
    SECRETS = "secrets"
    """Set and delete one's own secrets, and list their names."""
    TOKENS = "tokens"
    """Make, list and revoke one's own tokens."""
    USERS = "users"
    """Manage users, their tokens and their quotas."""
    AUDIT = "audit"


class Role(StrEnum):
    """The role of a user. It limits what the user may do."""

    VIEWER = "viewer"
    """Reads the jobs of the team."""
    MEMBER = "member"
    """Also submits jobs, and acts on their own."""
    OPERATOR = "operator"
    """Also drains workers, reads the service's metrics, and sees the row of every job in lists."""
    ADMIN = "admin"

    @property
    def scopes(self) -> frozenset[Scope]:
        return _SCOPES[self]


DEFAULT_SHARE = 100
"""`Resource.SHARE` of whoever has none."""


class Resource(StrEnum):
    """A resource that a quota limits. `share` is the fair-share weight."""

    DEVICES = "devices"
    """Devices that running jobs hold at once."""
    RUNNING = "running"
    """Jobs that run at once."""
    QUEUED = "queued"
    """Jobs that wait: queued and paused ones."""
    PRIORITY = "priority"
    """The highest priority of a job."""
    STORED_BYTES = "stored_bytes"
    """Bytes of what jobs have stored (checkpoints, artifacts, metrics and logs), of bundles, and of what requests have
    written (specs, points, notes, cards and preferences) beyond 1 MiB."""
    SHARE = "share"
    """The part in the devices, compared to that of others whose jobs wait or run. It limits nothing."""


_VIEWER = frozenset({Scope.ACCOUNT, Scope.JOBS_READ, Scope.CLUSTER_READ, Scope.TOKENS})
_MEMBER = _VIEWER | {Scope.JOBS_WRITE, Scope.JOBS_EXEC, Scope.SECRETS}
_OPERATOR = _MEMBER | {Scope.CLUSTER_WRITE, Scope.FIGURES_READ}
_SCOPES = {
    Role.VIEWER: _VIEWER,
    Role.MEMBER: _MEMBER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Scope),
}
