"""The JSON of users, tokens, sessions, quotas, secrets and the audit."""

from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from torchyard.contract.installs import InstallFileView
from torchyard.contract.team.codes import CodeKind
from torchyard.contract.team.roles import Resource, Role, Scope, Visibility
from torchyard.contract.wire.view import View


class UserView(View):
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None = None


class TokenView(View):
    """A token, without its secret."""

    id: str
    user: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None = None
    used_at: datetime | None = None
    """Time of the last use, to the minute."""
    revoked_at: datetime | None = None


class NewTokenView(TokenView):
    """A new token. Only this answer has its text."""

    token: str


class MeView(View):
    """The user, role and scopes of the request."""

    name: str
    role: Role
    scopes: list[Scope]
    token_id: str | None = None
    """Null for the bootstrap administrator's token."""
    preferences: dict[str, JsonValue] | None = None
    """The user's preferences for the page; null unless requested."""


class SessionView(MeView):
    """The user that logged in, and the `csrf` to send with the cookie."""

    csrf: str
    """Send it as `X-CSRF-Token` with the cookie. Only this answer has it."""


class BrowserSessionView(View):
    """A browser session."""

    id: str
    token_id: str | None
    """The token that opened it. The session ends with it. Null: the bootstrap administrator's token."""
    address: str
    """Address of the last use; empty if unknown."""
    created_at: datetime
    used_at: datetime | None
    """Time of the last use, to the minute."""
    expires_at: datetime
    current: bool
    """Whether this request uses the session."""


class SavedViewView(View):
    """A saved view: a named list of jobs."""

    owner: str
    name: str
    query: str
    """Query of the page's address, such as `state=failed&sort=name`."""
    visibility: Visibility
    """`team`: all users may open it."""
    updated_at: datetime


class FileLinkView(View):
    """A link to one file. It needs no header and no cookie."""

    path: str
    """Path and query, relative to the address of the service."""
    expires_at: datetime
    """A download must begin before this time."""


class LoginCodeView(View):
    """A one-time code that logs in a browser on the service's machine."""

    code: str
    expires_at: datetime
    has_page: bool
    """Whether the service has its web page."""


class NewCodeView(View):
    """A one-time code for a new worker or a new user. It is valid for ten minutes."""

    code: str
    expires_at: datetime
    url: str | None
    """Address of the service for other machines; null if unknown."""
    wheel: InstallFileView
    """The file that installs this version on another machine."""


class JoinedView(View):
    """The user or worker that joined, and its token. Only this answer has the token."""

    kind: CodeKind
    name: str
    """Name of the worker or the user."""
    token: str
    worker_id: str | None = None
    """Id of the worker; null for a user."""


class OwnWorkerView(View):
    """The worker of a worker's token."""

    worker_id: str


class CodeOwnerView(View):
    """The user of a login code."""

    name: str
    role: Role


class QuotaView(View):
    """The limits of a role or a user. A limit of null is unlimited."""

    kind: Literal["role", "user"]
    name: str
    limits: dict[Resource, int | None]


class QuotaUse(View):
    """A user's limit and current use of a resource. A limit of null is unlimited. A priority has no use."""

    resource: Resource
    limit: int | None
    used: int | None


class UserQuotaView(View):
    """The limits that apply to a user: the user's own, else those of the role."""

    user: str
    uses: list[QuotaUse]


class SecretView(View):
    """A secret without its value."""

    name: str
    created_at: datetime
    updated_at: datetime


class RotationView(View):
    """The number of secrets that were encrypted with the new key."""

    encrypted: int


class AuditView(View):
    """An entry of the audit log: who did what."""

    id: int
    time: datetime
    who: str
    """The user; empty for a failed login."""
    token_id: str | None
    address: str
    action: str
    object: str
    outcome: str
    """`ok`, or the code of the error."""
    request_id: str
