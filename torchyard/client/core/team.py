"""Operations on users, tokens, browser sessions, quotas, secrets and saved views.

Each raises Forbidden if your role or token does not allow it.
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
    """Operations on users. A `name` is the name of a user."""

    def list(self) -> AsyncGenerator[UserView]:
        """Yields the users by name.

        Example:
            >>> [(user.name, user.role.value) for user in client.users.list()][0]
            ('admin', 'admin')
        """
        return self._connection.pages(Call(Page[UserView], "GET", "/v1/users", {"limit": LARGE_PAGE}))

    async def add(self, name: str, *, role: Role = Role.MEMBER) -> UserView:
        """Adds a user. Make a token or a code for the user next.

        Args:
            name: The name.
            role: `viewer`, `member`, `operator` or `admin`.

        Raises:
            Conflict: There is a user with this name.

        Example:
            >>> client.users.add("alice").role.value
            'member'
        """
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
        """Changes a user. Omitted fields stay. The tokens of a disabled user end at once.

        Args:
            name: The name.
            role: The new role.
            disabled: Whether to disable the user.
            jobs: What to do with the jobs of a disabled user: `keep` (default) or `cancel`.

        Raises:
            NotFound: There is no such user.
            Conflict: The user is the bootstrap administrator.
        """
        content = json.dumps(given({"role": role, "disabled": disabled, "jobs": jobs}))
        call = Call(UserView, "PATCH", f"/v1/users/{segment(name)}", content=content, headers=JSON)
        return await self._connection.answer(call)

    async def code(self, name: str) -> NewCodeView:
        """Makes a one-time code with which a user logs in. It is valid for ten minutes.

        Raises:
            NotFound: There is no such user.
        """
        return await self._connection.answer(new_code("user", name))


class TokensCore(Core):
    """Operations on tokens."""

    def list(self, *, user: str | None = None) -> AsyncGenerator[TokenView]:
        """Yields your tokens, newest first, including expired and revoked ones.

        Args:
            user: The tokens of this user (administrators only).
        """
        return self._connection.pages(Call(Page[TokenView], "GET", "/v1/tokens", {"user": user, "limit": LARGE_PAGE}))

    async def make(
        self,
        *,
        name: str = "token",
        user: str | None = None,
        scopes: Sequence[str] | None = None,
        lifetime: timedelta | None = timedelta(days=90),
    ) -> NewTokenView:
        """Makes a token. Only this answer has its text.

        Args:
            name: A name for the token.
            user: The user of the token (administrators only); None: you.
            scopes: Its scopes; None: those of the token that the client sends, without `jobs:exec`.
            lifetime: When it expires; None: never.

        Raises:
            NotFound: There is no such user.
            Forbidden: The client's token lacks one of the scopes.

        Example:
            >>> token = client.tokens.make(name="ci", scopes=["jobs:read"], lifetime=timedelta(days=30))
            >>> with Client(client.server.url, token.token) as reader:
            ...     "jobs:write" in reader.me().scopes
            False
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
        """Revokes a token and all tokens made with it. They end at once.

        Args:
            token_id: The token's id.

        Raises:
            NotFound: There is no such token.
        """
        await self._connection.send(Call(View, "DELETE", f"/v1/tokens/{segment(token_id)}"))


class SessionsCore(Core):
    """Operations on your browser sessions."""

    def list(self) -> AsyncGenerator[BrowserSessionView]:
        """Yields your browser sessions, the last used first."""
        return self._connection.pages(Call(Page[BrowserSessionView], "GET", "/v1/sessions"))

    async def end(self, session_id: str) -> None:
        """Logs out one of your browsers.

        Args:
            session_id: The session's id.

        Raises:
            NotFound: You have no such session.
        """
        await self._connection.send(Call(View, "DELETE", f"/v1/sessions/{segment(session_id)}", repeatable=False))


class QuotasCore(Core):
    """Operations on quotas."""

    def list(self) -> AsyncGenerator[QuotaView]:
        """Yields the limits of roles and users."""
        return self._connection.pages(Call(Page[QuotaView], "GET", "/v1/quotas"))

    async def get(self, user: str) -> UserQuotaView:
        """Returns the limits and the current use of a user.

        Args:
            user: The name of the user.

        Raises:
            NotFound: There is no such user.
        """
        return await self._connection.answer(Call(UserQuotaView, "GET", _quota_path("user", user)))

    async def set(self, name: str, *, kind: QuotaKind = "user", limits: Mapping[Resource, int | None]) -> None:
        """Sets limits of a user, or of each user of a role. Omitted limits stay.

        Args:
            name: The name of the user or role.
            kind: `user` or `role`.
            limits: Limits by resource: `devices`, `running`, `queued`, `priority`, `stored_bytes`, `share`; None:
                unlimited.

        Raises:
            NotFound: There is no such user.

        Example:
            >>> client.quotas.set("member", kind="role", limits={"devices": 4})
            >>> [quota.name for quota in client.quotas.list()]
            ['member']
        """
        content = json.dumps({**limits})
        await self._connection.send(Call(View, "PUT", _quota_path(kind, name), content=content, headers=JSON))

    async def clear(self, name: str, *, kind: QuotaKind = "user", resources: Sequence[Resource] = ()) -> None:
        """Removes limits of a user or a role. The limits of the role apply again to the user.

        Args:
            name: The name of the user or role.
            kind: `user` or `role`.
            resources: The limits to remove; none: all.
        """
        await self._connection.send(Call(View, "DELETE", _quota_path(kind, name), {"resource": resources}))


class SecretsCore(Core):
    """Operations on your secrets."""

    def list(self) -> AsyncGenerator[SecretView]:
        """Yields the names and dates of your secrets. No method returns a value.

        Example:
            >>> stored = client.secrets.set("HF_TOKEN", "hf_123")
            >>> [secret.name for secret in client.secrets.list()]
            ['HF_TOKEN']
        """
        return self._connection.pages(Call(Page[SecretView], "GET", "/v1/secrets"))

    async def set(self, name: str, value: str) -> SecretView:
        """Sets a secret. Jobs that start later get the new value.

        Args:
            name: The name, as in `env` of a job spec.
            value: The value.

        Raises:
            Conflict: You have too many secrets.
        """
        content = json.dumps({"value": value})
        return await self._connection.answer(Call(SecretView, "PUT", _secret_path(name), content=content, headers=JSON))

    async def delete(self, name: str) -> None:
        """Deletes a secret. A job that names it and starts later fails.

        Args:
            name: The name.

        Raises:
            NotFound: You have no such secret.
        """
        await self._connection.send(Call(View, "DELETE", _secret_path(name), repeatable=False))

    async def rotate(self) -> RotationView:
        """Encrypts all secrets of all users again, with the newest key. Needs the role admin."""
        return await self._connection.answer(Call(RotationView, "POST", "/v1/secrets/rotate"))


class SavedViewsCore(Core):
    """Operations on saved views: named lists of jobs for the page."""

    def list(self) -> AsyncGenerator[SavedViewView]:
        """Yields your saved views by name, then those of the team."""
        return self._connection.pages(Call(Page[SavedViewView], "GET", "/v1/saved-views"))

    async def save(self, name: str, query: str, *, visibility: Visibility = "private") -> SavedViewView:
        """Saves a view. It replaces your view of the same name.

        Args:
            name: The name.
            query: The query of the page's address, such as `state=failed&sort=name`.
            visibility: `private`, or `team`: all users may open it.

        Raises:
            Conflict: You have 100 views.

        Example:
            >>> client.saved_views.save("failed", "state=failed&sort=name").visibility
            'private'
        """
        content = json.dumps({"name": name, "query": query, "visibility": visibility})
        return await self._connection.answer(
            Call(SavedViewView, "PUT", "/v1/saved-views", content=content, headers=JSON)
        )

    async def delete(self, name: str, *, owner: str | None = None) -> None:
        """Deletes a saved view.

        Args:
            name: The name.
            owner: The owner of the view (administrators only); None: you.

        Raises:
            NotFound: There is no such view.
        """
        await self._connection.send(Call(View, "DELETE", "/v1/saved-views", {"name": name, "owner": owner}))


def _quota_path(kind: QuotaKind, name: str) -> str:
    return f"/v1/quotas/{kind}s/{segment(name)}"


def _secret_path(name: str) -> str:
    return f"/v1/secrets/{segment(name)}"
