"""The operations on users, tokens, quotas, secrets and the audit, as `ClientCore` has them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from torchyard.client.calls import team as calls
from torchyard.client.calls.team import QuotaKind
from torchyard.client.core.base import Core
from torchyard.contract.team.roles import Resource, Role, Scope, Visibility
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


class TeamCore(Core):
    """Each operation raises Forbidden if the caller's role or token does not allow it."""

    async def me(self) -> MeView:
        """Returns whose token this client sends, and what it may be used for."""
        return await self._connection.answer(calls.me())

    async def login_code(self) -> LoginCodeView:
        """Returns a one-time code, valid for a minute, that logs a browser on this machine in as this client's user.

        Raises Forbidden if the server is on another machine, or behind a proxy.
        """
        return await self._connection.answer(calls.login_code())

    def users(self) -> AsyncGenerator[UserView]:
        """Yields the users by name."""
        return self._connection.pages(calls.users())

    async def add_user(self, name: str, *, role: Role = Role.MEMBER) -> UserView:
        """Adds a user, who needs a token to do anything. Raises Conflict if there is one of that name."""
        return await self._connection.answer(calls.add_user(name, role=role))

    async def change_user(
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
        return await self._connection.answer(calls.change_user(name, role=role, disabled=disabled, jobs=jobs))

    def tokens(self, *, user: str | None = None) -> AsyncGenerator[TokenView]:
        """Yields the caller's tokens or those of `user`, newest first, also expired and revoked ones."""
        return self._connection.pages(calls.tokens(user=user))

    async def make_token(
        self,
        *,
        name: str = "token",
        user: str | None = None,
        scopes: Sequence[Scope] | None = None,
        lifetime: timedelta | None = timedelta(days=90),
    ) -> NewTokenView:
        """Makes a token for the caller or for `user`. Its text is in this answer and nowhere else.

        Without `scopes` it may do all that its user may; without a `lifetime` it does not expire. Raises NotFound.
        """
        return await self._connection.answer(calls.make_token(name=name, user=user, scopes=scopes, lifetime=lifetime))

    async def revoke_token(self, token_id: str) -> None:
        """Revokes a token at once. Raises NotFound."""
        await self._connection.send(calls.revoke_token(token_id))

    def sessions(self) -> AsyncGenerator[BrowserSessionView]:
        """Yields the browsers in which the caller is signed in, the last used first."""
        return self._connection.pages(calls.sessions())

    async def end_session(self, session_id: str) -> None:
        """Signs one of the caller's browsers out. Raises NotFound."""
        await self._connection.send(calls.end_session(session_id))

    def quotas(self) -> AsyncGenerator[QuotaView]:
        """Yields the limits that are set for roles and users."""
        return self._connection.pages(calls.quotas())

    async def quota(self, user: str) -> UserQuotaView:
        """Returns what a user may use, and uses. Raises NotFound."""
        return await self._connection.answer(calls.quota(user))

    async def set_quota(self, name: str, *, kind: QuotaKind = "user", limits: Mapping[Resource, int | None]) -> None:
        """Sets limits of a user, or of each user of a role; None is unlimited. Others stay. Raises NotFound."""
        await self._connection.send(calls.set_quota(kind, name, limits))

    async def clear_quota(self, name: str, *, kind: QuotaKind = "user", resources: Sequence[Resource] = ()) -> None:
        """Removes limits of a user or a role: all, or those of `resources`. A user then has those of the role."""
        await self._connection.send(calls.clear_quota(kind, name, resources))

    def secrets(self) -> AsyncGenerator[SecretView]:
        """Yields the caller's secrets by name, without their values."""
        return self._connection.pages(calls.secrets())

    async def set_secret(self, name: str, value: str) -> SecretView:
        """Stores a secret of the caller, or its new value. Raises Conflict if there are too many."""
        return await self._connection.answer(calls.set_secret(name, value))

    async def delete_secret(self, name: str) -> None:
        """Deletes a secret of the caller. Raises NotFound."""
        await self._connection.send(calls.delete_secret(name))

    def saved_views(self) -> AsyncGenerator[SavedViewView]:
        """Yields the lists of jobs that the caller keeps on the page by name, and then those kept for the team."""
        return self._connection.pages(calls.saved_views())

    async def save_view(self, name: str, query: str, *, visibility: Visibility = "private") -> SavedViewView:
        """Keeps a list of jobs, in place of one of its name. `query` is that of the page's address, such as
        `state=failed&sort=name`. Raises Conflict if there are too many.
        """
        return await self._connection.answer(calls.save_view(name, query, visibility=visibility))

    async def delete_saved_view(self, name: str, *, owner: str | None = None) -> None:
        """Removes a list of jobs of the caller, or as an administrator one of `owner`. Raises NotFound."""
        await self._connection.send(calls.delete_saved_view(name, owner=owner))

    async def rotate_secrets(self) -> RotationView:
        """Has every user's secrets encrypted with the newest key."""
        return await self._connection.answer(calls.rotate_secrets())

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        object: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[AuditView]:
        """Yields what was done, newest first, where every given argument matches. `action` may be a kind: `job`."""
        call = calls.audit(
            who=who, action=action, object=object, outcome=outcome, since=since, until=until, limit=limit
        )
        return self._connection.pages(call, limit=limit)
