"""Who may use the service: users, their tokens, browser sessions, quotas, secrets and views, and what they did."""

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, String, false
from sqlalchemy.orm import Mapped, mapped_column

from store.db.database import CleanText, Document, now_us
from store.db.tables import Base, BigKey


class User(Base):
    """A person or a program. The name is the owner of its jobs, so a row is disabled and never deleted."""

    __tablename__ = "users"

    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    """A `torchyard.contract.team.roles.Role`."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    disabled_at: Mapped[int | None] = mapped_column(BigInteger)


class Token(Base):
    """A personal token, `ty_<hex of the id>_<secret>`."""

    __tablename__ = "tokens"
    __table_args__ = (Index("ix_tokens_user", "user"), Index("ix_tokens_made_by", "made_by"))

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    user: Mapped[str] = mapped_column(ForeignKey("users.name"))
    made_by: Mapped[str | None] = mapped_column(String(40))
    """The id of the token that was used to make it; it is revoked with that. None: the bootstrap administrator's."""
    name: Mapped[str] = mapped_column(CleanText)
    """What its user calls it."""
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the secret, in hex. The secret has 256 random bits, so a slow hash would add nothing."""
    scopes: Mapped[list[Any]]
    """`torchyard.contract.team.roles.Scope` each. What the user's role does not allow, no token allows."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    expires_at: Mapped[int | None] = mapped_column(BigInteger)
    used_at: Mapped[int | None] = mapped_column(BigInteger)
    """The last use, to the minute."""
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)


class BrowserSession(Base):
    """A browser that was given a cookie for a token."""

    __tablename__ = "browser_sessions"
    __table_args__ = (Index("ix_browser_sessions_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of the cookie's value, in hex."""
    csrf_digest: Mapped[str] = mapped_column(String(64))
    """SHA-256, in hex, of the secret that the page sends beside the cookie, which other ports of the host get, too."""
    credential: Mapped[str] = mapped_column(String(64))
    """The id of the token, or the SHA-256 of the bootstrap administrator's. The session ends with it."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    expires_at: Mapped[int] = mapped_column(BigInteger)
    used_at: Mapped[int | None] = mapped_column(BigInteger)
    """The last use, to the minute. None: it was opened before this was stored, and not used since."""
    address: Mapped[str] = mapped_column(String(64), default="", server_default="")
    """From where it was used last."""
    exec: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether it may reach into running jobs, if its token may."""


class LoginCode(Base):
    """A code that opens one session. The row is deleted by who uses it."""

    __tablename__ = "login_codes"
    __table_args__ = (Index("ix_login_codes_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of the code, in hex."""
    credential: Mapped[str] = mapped_column(String(64))
    """As that of a session."""
    expires_at: Mapped[int] = mapped_column(BigInteger)


class JoinCode(Base):
    """A code by which a machine becomes a worker, or a user logs in. It is used once."""

    __tablename__ = "join_codes"
    __table_args__ = (Index("ix_join_codes_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """SHA-256 of its secret, in hex."""
    kind: Mapped[str] = mapped_column(String(8))
    """A `torchyard.contract.team.codes.CodeKind`."""
    name: Mapped[str] = mapped_column(String(100))
    """Of the worker, or of the user."""
    made_by: Mapped[str] = mapped_column(String(100))
    expires_at: Mapped[int] = mapped_column(BigInteger)
    users: Mapped[list[str] | None] = mapped_column(Document)
    """The users whose jobs the worker takes. NULL: all."""
    used_at: Mapped[int | None] = mapped_column(BigInteger)
    used_by: Mapped[str | None] = mapped_column(String(64))
    """SHA-256 of the key of the machine that has used it, in hex: a machine whose answer was lost sends it again."""
    given: Mapped[str | None] = mapped_column(String(40))
    """The id of the worker, or of the token, that it made."""


class FailedLogins(Base):
    """Counts the recent wrong tokens, cookies, codes and logins of an address."""

    __tablename__ = "failed_logins"
    __table_args__ = (Index("ix_failed_logins_forgotten_at", "forgotten_at"),)

    address: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The address or network that the limit counts."""
    forgotten_at: Mapped[int] = mapped_column(BigInteger)
    """When all are forgotten: each failed login adds the time after which it may be repeated for ever."""


class Quota(Base):
    """How much of one resource a user, or each user of a role, may use. A user's own row replaces the role's."""

    __tablename__ = "quotas"
    __table_args__ = (CheckConstraint("kind IN ('role', 'user')", name="kind"),)

    kind: Mapped[str] = mapped_column(String(4), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    """The name of the user or of the role."""
    resource: Mapped[str] = mapped_column(String(20), primary_key=True)
    """A `torchyard.contract.team.roles.Resource`."""
    limit: Mapped[int | None] = mapped_column(BigInteger)
    """None: unlimited, whatever the role's row says."""


class Secret(Base):
    """A value that jobs of its owner get in their environment. Only its encrypted form is stored."""

    __tablename__ = "secrets"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    value: Mapped[bytes] = mapped_column(LargeBinary)
    """Encrypted."""
    key_id: Mapped[str] = mapped_column(String(16))
    """Which key encrypted it."""
    created_at: Mapped[int] = mapped_column(BigInteger, default=now_us())
    updated_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class Preferences(Base):
    """What the page keeps for a user."""

    __tablename__ = "preferences"

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    document: Mapped[dict[str, Any]]
    updated_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class SavedView(Base):
    """A list of jobs that a user keeps under a name, as the page's address has it."""

    __tablename__ = "saved_views"
    __table_args__ = (Index("ix_saved_views_visibility", "visibility"),)

    owner: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    query: Mapped[str] = mapped_column(CleanText)
    """Only the page knows what it means."""
    visibility: Mapped[str] = mapped_column(String(8))
    """A `torchyard.contract.team.roles.Visibility`."""
    updated_at: Mapped[int] = mapped_column(BigInteger, default=now_us())


class AuditEntry(Base):
    """Who did what. Rows are only added, in the transaction of the change."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    time: Mapped[int] = mapped_column(BigInteger, default=now_us())
    who: Mapped[str] = mapped_column(String(100))
    """The name of the user; empty for a failed login."""
    token_id: Mapped[str | None] = mapped_column(String(40))
    address: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(40))
    object: Mapped[str] = mapped_column(CleanText)
    outcome: Mapped[str] = mapped_column(String(40))
    """`ok`, or the code of the error."""
    request_id: Mapped[str] = mapped_column(String(100))
