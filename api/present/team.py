"""The views of users and what they have."""

from collections import defaultdict
from collections.abc import Iterable

from api.present.times import time, time_or_none
from store.team.facts import AuditFacts, ListedSession, QuotaFacts, QuotaUsage, SecretFacts, TokenFacts, UserFacts
from torchyard.contract.team import DEFAULT_SHARE, Resource, Role, Scope
from torchyard.contract.views.team import (
    AuditView,
    BrowserSessionView,
    QuotaUse,
    QuotaView,
    SecretView,
    TokenView,
    UserQuotaView,
    UserView,
)


def user(facts: UserFacts) -> UserView:
    """Returns the view of a user."""
    return UserView(
        name=facts.name,
        role=Role(facts.role),
        created_at=time(facts.created_at),
        disabled_at=time_or_none(facts.disabled_at),
    )


def token(facts: TokenFacts) -> TokenView:
    """Returns the view of a token."""
    return TokenView(
        id=facts.id,
        user=facts.user,
        name=facts.name,
        scopes=[Scope(scope) for scope in facts.scopes],
        created_at=time(facts.created_at),
        expires_at=time_or_none(facts.expires_at),
        used_at=time_or_none(facts.used_at),
        revoked_at=time_or_none(facts.revoked_at),
    )


def browser_session(facts: ListedSession, *, current: str) -> BrowserSessionView:
    """Returns the view of a session. `current`: the digest of the one in which the request was made."""
    return BrowserSessionView(
        id=facts.id,
        token_id=facts.credential if facts.credential.startswith("tok_") else None,
        address=facts.address,
        created_at=time(facts.created_at),
        used_at=time_or_none(facts.used_at),
        expires_at=time(facts.expires_at),
        current=facts.digest == current,
    )


def secret(facts: SecretFacts) -> SecretView:
    """Returns the view of a secret, without its value."""
    return SecretView(name=facts.name, created_at=time(facts.created_at), updated_at=time(facts.updated_at))


def quotas(listed: Iterable[QuotaFacts]) -> list[QuotaView]:
    """Returns the views of limits, one of each role and user."""
    found: dict[tuple[str, str], dict[Resource, int | None]] = defaultdict(dict)
    for facts in listed:
        found[facts.kind, facts.name][Resource(facts.resource)] = facts.limit
    return [
        QuotaView.model_validate({"kind": kind, "name": name, "limits": limits})
        for (kind, name), limits in found.items()
    ]


def quota_usage(name: str, facts: QuotaUsage) -> UserQuotaView:
    """Returns the view of what a user may use, and uses."""
    limits = {Resource.SHARE: DEFAULT_SHARE, **facts.limits}
    uses = [QuotaUse(resource=item, limit=limits.get(item), used=facts.used.get(item)) for item in Resource]
    return UserQuotaView(user=name, uses=uses)


def audit_entry(facts: AuditFacts) -> AuditView:
    """Returns the view of an entry of the audit."""
    return AuditView(
        id=facts.id,
        time=time(facts.time),
        who=facts.who,
        token_id=facts.token_id,
        address=facts.address,
        action=facts.action,
        object=facts.object,
        outcome=facts.outcome,
        request_id=facts.request_id,
    )
