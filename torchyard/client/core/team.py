"""The operations on users, tokens, sessions, quotas, secrets and saved views.

Each raises Forbidden if the caller's role or token does not allow it.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
import json
from typing import Literal

from torchyard.client.calls.call import JSON, LARGE_PAGE, Call, given, new_code, segment
from torchyard.client.core.base import Core
from torchyard.contract.team.roles import Resource, Role, Visibility
from torchyard.contract.team.views import (
    BrowserSessionView,
    NewCodeView,
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


class UsersCore(Core):
    """Operations on users."""

    def list(self) -> AsyncGenerator[UserView]:
        """Yields the users by name."""
        return self._connection.pages(Call(Page[UserView], "GET", "/v1/users", {"limit": LARGE_PAGE}))

    async def add(self, name: str, *, role: Role = Role.MEMBER) -> UserView:
        """Adds a user, who needs a token to do anything. Raises Conflict if there is one of that name."""
        content = json.dumps({"name": name, "role": role})
        call = Call(UserView, "POST", "/v1/users", content=content, headers=JSON, repeatable=False)
        return await self._connection.answer(call)

    async def change(
        self,
        name: str,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        jobs: Literal["keep", "cancel"] | None = None,
    ) -> UserView:
        """Changes what is given. The tokens of a disabled user end at once; `jobs` says what becomes of their jobs,
        which are kept by default. Raises NotFound, and Conflict for a change of the bootstrap administrator.
        """
        content = json.dumps(given({"role": role, "disabled": disabled, "jobs": jobs}))
        call = Call(UserView, "PATCH", f"/v1/users/{segment(name)}", content=content, headers=JSON)
        return await self._connection.answer(call)

    async def code(self, name: str) -> NewCodeView:
        """Makes a code by which a user logs in on one machine, once, within ten minutes. Raises NotFound."""
        return await self._connection.answer(new_code("user", name))


class TokensCore(Core):
    """Operations on tokens."""

    def list(self, *, user: str | None = None) -> AsyncGenerator[TokenView]:
        """Yields the caller's tokens or those of `user`, newest first, also expired and revoked ones."""
        return self._connection.pages(Call(Page[TokenView], "GET", "/v1/tokens", {"user": user, "limit": LARGE_PAGE}))

    async def make(
        self,
        *,
        name: str = "token",
        user: str | None = None,
        scopes: Sequence[str] | None = None,
        lifetime: timedelta | None = timedelta(days=90),
    ) -> NewTokenView:
        """Makes a token for the caller or for `user`. Its text is in this answer and nowhere else.

        Without `scopes` it may do all that its user may; without a `lifetime` it does not expire. Raises NotFound.
        """
        body = {
            "name": name,
            "user": user,
            "scopes": None if scopes is None else [*scopes],
            "lifetime": None if lifetime is None else format_duration(lifetime),
        }
        call = Call(NewTokenView, "POST", "/v1/tokens", content=json.dumps(body), headers=JSON, repeatable=False)
        return await self._connection.answer(call)

    async def revoke(self, token_id: str) -> None:
        """Revokes a token at once. Raises NotFound."""
        await self._connection.send(Call(View, "DELETE", f"/v1/tokens/{segment(token_id)}"))


class SessionsCore(Core):
    """Operations on the browsers in which the caller is signed in."""

    def list(self) -> AsyncGenerator[BrowserSessionView]:
        """Yields the browsers in which the caller is signed in, the last used first."""
        return self._connection.pages(Call(Page[BrowserSessionView], "GET", "/v1/sessions"))

    async def end(self, session_id: str) -> None:
        """Signs one of the caller's browsers out. Raises NotFound."""
        await self._connection.send(Call(View, "DELETE", f"/v1/sessions/{segment(session_id)}", repeatable=False))


class QuotasCore(Core):
    """Operations on quotas."""

    def list(self) -> AsyncGenerator[QuotaView]:
        """Yields the limits that are set for roles and users."""
        return self._connection.pages(Call(Page[QuotaView], "GET", "/v1/quotas"))

    async def get(self, user: str) -> UserQuotaView:
        """Returns what a user may use, and uses. Raises NotFound."""
        return await self._connection.answer(Call(UserQuotaView, "GET", _quota_path("user", user)))

    async def set(self, name: str, *, kind: QuotaKind = "user", limits: Mapping[Resource, int | None]) -> None:
        """Sets limits of a user, or of each user of a role; None is unlimited. Others stay. Raises NotFound."""
        content = json.dumps({**limits})
        await self._connection.send(Call(View, "PUT", _quota_path(kind, name), content=content, headers=JSON))

    async def clear(self, name: str, *, kind: QuotaKind = "user", resources: Sequence[Resource] = ()) -> None:
        """Removes limits of a user or a role: all, or those of `resources`. A user then has those of the role."""
        await self._connection.send(Call(View, "DELETE", _quota_path(kind, name), {"resource": resources}))


class SecretsCore(Core):
    """Operations on the caller's secrets."""

    def list(self) -> AsyncGenerator[SecretView]:
        """Yields the caller's secrets by name, without their values."""
        return self._connection.pages(Call(Page[SecretView], "GET", "/v1/secrets"))

    async def set(self, name: str, value: str) -> SecretView:
        """Stores a secret of the caller, or its new value. Raises Conflict if there are too many."""
        content = json.dumps({"value": value})
        return await self._connection.answer(Call(SecretView, "PUT", _secret_path(name), content=content, headers=JSON))

    async def delete(self, name: str) -> None:
        """Deletes a secret of the caller. Raises NotFound."""
        await self._connection.send(Call(View, "DELETE", _secret_path(name), repeatable=False))

    async def rotate(self) -> RotationView:
        """Has every user's secrets encrypted with the newest key."""
        return await self._connection.answer(Call(RotationView, "POST", "/v1/secrets/rotate"))


class SavedViewsCore(Core):
    """Operations on lists of jobs that are kept by name, for the page."""

    def list(self) -> AsyncGenerator[SavedViewView]:
        """Yields the lists of jobs that the caller keeps on the page by name, and then those kept for the team."""
        return self._connection.pages(Call(Page[SavedViewView], "GET", "/v1/saved-views"))

    async def save(self, name: str, query: str, *, visibility: Visibility = "private") -> SavedViewView:
        """Saves a list of jobs. It replaces one of the same name. `query` is that of the page's address, such as
        `state=failed&sort=name`. Raises Conflict if there are too many.
        """
        content = json.dumps({"name": name, "query": query, "visibility": visibility})
        return await self._connection.answer(
            Call(SavedViewView, "PUT", "/v1/saved-views", content=content, headers=JSON)
        )

    async def delete(self, name: str, *, owner: str | None = None) -> None:
        """Removes a list of jobs of the caller, or as an administrator one of `owner`. Raises NotFound."""
        await self._connection.send(Call(View, "DELETE", "/v1/saved-views", {"name": name, "owner": owner}))


def _quota_path(kind: QuotaKind, name: str) -> str:
    return f"/v1/quotas/{kind}s/{segment(name)}"


def _secret_path(name: str) -> str:
    return f"/v1/secrets/{segment(name)}"
