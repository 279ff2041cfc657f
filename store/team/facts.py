"""What is known of users and what they have. Times are microseconds since the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
import hashlib

from torchyard.contract.team.codes import CodeKind
from torchyard.contract.team.roles import Role, Scope
from torchyard.contract.team.views import AuditView


@dataclass(frozen=True)
class Identity:
    """The user of a valid token."""

    name: str
    role: Role
    scopes: frozenset[Scope]
    token_id: str
    use_is_stale: bool = False
    """Whether the token was not used within the last minute."""
    left_us: int | None = None
    """Microseconds until the token expires, if it does."""


@dataclass(frozen=True)
class OpenedSession:
    """A new session of a browser. Its two secrets are stored as digests alone, and are returned this once."""

    digest: str
    cookie: str
    csrf: str
    expires_at: int


@dataclass(frozen=True, slots=True)
class BrowserSessionFacts:
    """A session of a browser. `credential`: the id of its token, or the digest of the bootstrap administrator's."""

    digest: str
    csrf_digest: str
    credential: str
    exec: bool
    """Whether it may reach into running jobs, if its token may."""
    use_is_stale: bool = False
    """Whether it was not used within the last minute."""


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session of a browser, as its user sees it."""

    digest: str
    credential: str
    created_at: int
    expires_at: int
    used_at: int | None
    address: str

    @property
    def id(self) -> str:
        """Returns what names it to its user. Whoever knows it learns neither of its secrets."""
        return f"ses_{digest_of(f'id of {self.digest}')[:32]}"


@dataclass(frozen=True)
class AuditFilter:
    """A list shows the entries that meet every condition. Times are microseconds since the epoch."""

    who: str | None = None
    action: str | None = None
    """The action, or the part of several before their dot."""
    object: str | None = None
    outcome: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class AuditPage:
    """Entries of the audit, newest first."""

    entries: Sequence[AuditView]
    next: int | None
    """The id before which the search goes on; None: nothing more can match."""


@dataclass(frozen=True)
class NewLoginCode:
    """A code that opens one session."""

    text: str
    expires_at: int


@dataclass(frozen=True)
class NewJoinCode:
    """A code by which a machine becomes a worker, or a user logs in."""

    secret: str
    expires_at: int


@dataclass(frozen=True)
class TakenCode:
    """What a code is for: a worker or a user of this name."""

    kind: CodeKind
    name: str
    made_by: str
    users: Sequence[str] | None = None
    """The users whose jobs the worker takes. None: all."""
    given: str | None = None
    """The id of the worker, or of the token, that the same machine got for it before."""


def digest_of(secret: str) -> str:
    """Returns the SHA-256 of the secret of a token or a session, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()
