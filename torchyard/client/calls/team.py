"""Calls about users, tokens, quotas, secrets and the audit."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
import json
from typing import Any, Literal

from torchyard.client.calls.call import (
    JSON,
    LARGE_PAGE,
    Call,
    Params,
    given,
    segment,
)
from torchyard.contract.team.roles import Resource
from torchyard.contract.team.views import (
    AuditView,
    BrowserSessionView,
    LoginCodeView,
    MeView,
    NewTokenView,
    QuotaView,
    RotationView,
    SavedViewView,
    SecretView,
    TokenView,
    UserQuotaView,
    UserView,
)
from torchyard.contract.wire.units import format_duration
from torchyard.contract.wire.view import Page, View

QuotaKind = Literal["user", "role"]
"""Whose limits a quota has: those of one user, or of every user of a role."""


def me() -> Call[MeView]:
    return Call(MeView, "GET", "/v1/me")


def login_code() -> Call[LoginCodeView]:
    return Call(LoginCodeView, "POST", "/v1/session/codes")


def users() -> Call[Page[UserView]]:
    return Call(Page[UserView], "GET", "/v1/users", {"limit": LARGE_PAGE})


def add_user(name: str, *, role: str) -> Call[UserView]:
    content = json.dumps({"name": name, "role": role})
    return Call(UserView, "POST", "/v1/users", content=content, headers=JSON, repeatable=False)


def change_user(name: str, **changes: Any) -> Call[UserView]:
    path = f"/v1/users/{segment(name)}"
    return Call(UserView, "PATCH", path, content=json.dumps(given(changes)), headers=JSON)


def tokens(*, user: str | None) -> Call[Page[TokenView]]:
    return Call(Page[TokenView], "GET", "/v1/tokens", {"user": user, "limit": LARGE_PAGE})


def make_token(
    *, name: str, user: str | None, scopes: Sequence[str] | None, lifetime: timedelta | None
) -> Call[NewTokenView]:
    body = {
        "name": name,
        "user": user,
        "scopes": None if scopes is None else [*scopes],
        "lifetime": None if lifetime is None else format_duration(lifetime),
    }
    return Call(NewTokenView, "POST", "/v1/tokens", content=json.dumps(body), headers=JSON, repeatable=False)


def revoke_token(token_id: str) -> Call[View]:
    return Call(View, "DELETE", f"/v1/tokens/{segment(token_id)}")


def sessions() -> Call[Page[BrowserSessionView]]:
    return Call(Page[BrowserSessionView], "GET", "/v1/sessions")


def end_session(session_id: str) -> Call[View]:
    return Call(View, "DELETE", f"/v1/sessions/{segment(session_id)}", repeatable=False)


def quotas() -> Call[Page[QuotaView]]:
    return Call(Page[QuotaView], "GET", "/v1/quotas")


def quota(user: str) -> Call[UserQuotaView]:
    return Call(UserQuotaView, "GET", _quota_path("user", user))


def set_quota(kind: QuotaKind, name: str, limits: Mapping[Resource, int | None]) -> Call[View]:
    return Call(View, "PUT", _quota_path(kind, name), content=json.dumps({**limits}), headers=JSON)


def clear_quota(kind: QuotaKind, name: str, resources: Sequence[str]) -> Call[View]:
    return Call(View, "DELETE", _quota_path(kind, name), {"resource": resources})


def secrets() -> Call[Page[SecretView]]:
    return Call(Page[SecretView], "GET", "/v1/secrets")


def set_secret(name: str, value: str) -> Call[SecretView]:
    return Call(SecretView, "PUT", _secret_path(name), content=json.dumps({"value": value}), headers=JSON)


def delete_secret(name: str) -> Call[View]:
    return Call(View, "DELETE", _secret_path(name), repeatable=False)


def saved_views() -> Call[Page[SavedViewView]]:
    return Call(Page[SavedViewView], "GET", "/v1/saved-views")


def save_view(name: str, query: str, *, visibility: str) -> Call[SavedViewView]:
    content = json.dumps({"name": name, "query": query, "visibility": visibility})
    return Call(SavedViewView, "PUT", "/v1/saved-views", content=content, headers=JSON)


def delete_saved_view(name: str, *, owner: str | None) -> Call[View]:
    return Call(View, "DELETE", "/v1/saved-views", {"name": name, "owner": owner})


def rotate_secrets() -> Call[RotationView]:
    return Call(RotationView, "POST", "/v1/secrets/rotate")


def audit(
    *,
    who: str | None,
    action: str | None,
    object: str | None,
    outcome: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
) -> Call[Page[AuditView]]:
    size = LARGE_PAGE if limit is None else max(1, min(limit, LARGE_PAGE))
    begins, ends = (None if time is None else time.astimezone(UTC).isoformat() for time in (since, until))
    params: Params = {
        "who": who,
        "action": action,
        "object": object,
        "outcome": outcome,
        "limit": size,
        "from": begins,
        "to": ends,
    }
    return Call(Page[AuditView], "GET", "/v1/audit", params)


def _secret_path(name: str) -> str:
    return f"/v1/secrets/{segment(name)}"


def _quota_path(kind: QuotaKind, name: str) -> str:
    return f"/v1/quotas/{kind}s/{segment(name)}"
