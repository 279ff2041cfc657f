"""Users and what they have, and who makes a request. All of them raise Unavailable."""

from collections.abc import Mapping, Sequence
from typing import Any

from store import pages
from store.db.database import Snapshots
from store.pages import FactPage
from store.team import audit, logins, preferences, quotas, secrets, tokens, users
from store.team.facts import (
    AuditFilter,
    AuditPage,
    BrowserSessionFacts,
    Identity,
    ListedSession,
    QuotaFacts,
    QuotaUsage,
    SecretFacts,
    TokenFacts,
    UserFacts,
)
from torchyard.contract.errors import QuotaExceeded


def list_users(store: Snapshots, *, limit: int, after: str | None) -> FactPage[UserFacts]:
    """Returns users by name; with `after` (a name), only those behind it."""
    with store.read() as session:
        return pages.first(users.list_all(session, limit=limit + 1, after=after), limit)


def list_tokens(store: Snapshots, user: str, *, limit: int, before: str | None) -> FactPage[TokenFacts]:
    """Returns the tokens of a user, newest first; with `before` (an id), only older ones."""
    with store.read() as session:
        return pages.first(tokens.list_of(session, user, limit=limit + 1, before=before), limit)


def list_sessions(store: Snapshots, user: str, *, credential: str | None) -> Sequence[ListedSession]:
    """Returns the user's browser sessions, as `store.team.tokens.sessions_of` does."""
    with store.read() as session:
        return tokens.sessions_of(session, user, credential=credential)


def list_audit(store: Snapshots, where: AuditFilter, *, limit: int, before: int | None) -> AuditPage:
    """Returns entries of the audit, as `store.team.audit.entries` does."""
    with store.read() as session:
        return audit.entries(session, where, limit=limit, before=before)


def list_secrets(store: Snapshots, owner: str) -> Sequence[SecretFacts]:
    """Returns the user's secrets by name."""
    with store.read() as session:
        return secrets.list_of(session, owner)


def list_quotas(store: Snapshots) -> Sequence[QuotaFacts]:
    """Returns all quotas, of roles and then of users, by name."""
    with store.read() as session:
        return quotas.listed(session)


def has_written_beyond_quota(store: Snapshots, name: str) -> bool:
    """Returns whether requests of the user have written more than the user may store."""
    try:
        with store.read() as session:
            quotas.check_change(session, name)
    except QuotaExceeded:
        return True
    return False


def quota_usage(store: Snapshots, name: str) -> QuotaUsage:
    """Returns what a user may use, and uses. Raises NotFound."""
    with store.read() as session:
        users.get(session, name)
        return QuotaUsage(quotas.limits_of(session, name), quotas.usage(session, name))


def preferences_of(store: Snapshots, user: str) -> Mapping[str, Any]:
    """Returns what the page keeps for the user."""
    with store.read() as session:
        return preferences.of(session, user)


def of_token(store: Snapshots, token: str) -> Identity | None:
    """Returns whose token this is, or None if it is not valid: unknown, expired, revoked, or of a disabled user."""
    with store.read() as session:
        return tokens.find(session, token)


def of_login_code(store: Snapshots, code: str) -> str | None:
    """Returns the credential for which the code was made, None if it is not valid."""
    with store.read() as session:
        return logins.find_code(session, code)


def of_token_id(store: Snapshots, token_id: str) -> Identity | None:
    """Returns whose token has this id, or None if it is not valid any more."""
    with store.read() as session:
        return tokens.find_by_id(session, token_id)


def of_cookies(store: Snapshots, cookies: Sequence[str], *, csrf: str) -> BrowserSessionFacts | None:
    """Returns the session that one of the cookies and the second secret open; None if it has ended."""
    with store.read() as session:
        opened = (tokens.find_session(session, cookie, csrf=csrf) for cookie in cookies)
        return next((found for found in opened if found is not None), None)


def of_session(store: Snapshots, digest: str) -> BrowserSessionFacts | None:
    """Returns the session whose cookie has this digest, or None if it has ended."""
    with store.read() as session:
        return tokens.find_session_by_digest(session, digest)
