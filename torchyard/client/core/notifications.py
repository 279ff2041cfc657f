"""The operations on targets of notifications, and on messages to them."""

from collections.abc import AsyncGenerator, Sequence
import json

from torchyard.client.calls.call import JSON, Call, bounded, given, segment
from torchyard.client.core.base import Core
from torchyard.client.shortids import only_id
from torchyard.contract.errors import NotFound
from torchyard.contract.notifications.kinds import EventKind, NotificationScope, TargetJobs, TargetKind
from torchyard.contract.notifications.views import MessageView, NewTargetView, TargetView
from torchyard.contract.wire.view import Page, View

_PATH = "/v1/notifications"


class NotificationsCore(Core):
    """Operations over one connection. A target is given by its id, and each raises NotFound without such a target."""

    def targets(self, *, user: str | None = None) -> AsyncGenerator[TargetView]:
        """Yields one's own targets by name. An administrator may name a user."""
        return self._connection.pages(Call(Page[TargetView], "GET", f"{_PATH}/targets", {"user": user}))

    async def find(self, ref: str, *, user: str | None = None) -> TargetView:
        """Returns the target with this name, else with this id or the only one with this short id."""
        found = {target.id: target async for target in self.targets(user=user)}
        named = next((target for target in found.values() if target.name == ref), None)
        target_id = only_id(ref, {target.id: target.name for target in found.values()}) if named is None else named.id
        if target_id is None:
            raise NotFound(f"there is no target with the name or id {ref!r}")
        return found[target_id]

    async def add(
        self,
        name: str,
        address: str,
        *,
        kind: TargetKind = "webhook",
        on: Sequence[EventKind] | None = None,
        jobs: TargetJobs = "all",
        scope: NotificationScope = "own",
        user: str | None = None,
    ) -> NewTargetView:
        """Adds a target. The secret that signs webhooks is in this answer and nowhere else.

        Raises Conflict if there is one of that name, and Forbidden for what only an administrator may: an address of
        mail, `scope="all"`, and another `user`.
        """
        kinds = None if on is None else [*on]
        new = {"name": name, "address": address, "kind": kind, "on": kinds, "jobs": jobs, "scope": scope, "user": user}
        content, path = json.dumps(given(new)), f"{_PATH}/targets"
        return await self._connection.answer(
            Call(NewTargetView, "POST", path, content=content, headers=JSON, repeatable=False)
        )

    async def change(
        self, target_id: str, *, on: Sequence[EventKind] | None = None, jobs: TargetJobs | None = None
    ) -> TargetView:
        """Changes what a target is told of."""
        content = json.dumps(given({"on": None if on is None else [*on], "jobs": jobs}))
        return await self._connection.answer(Call(TargetView, "PATCH", _path(target_id), content=content, headers=JSON))

    async def remove(self, target_id: str) -> None:
        """Removes a target, and gives up what waits for it."""
        await self._connection.send(Call(View, "DELETE", _path(target_id), repeatable=False))

    async def send_test(self, target_id: str) -> MessageView:
        """Has the service send a message that only shows whether it arrives. Raises TooManyRequests."""
        return await self._connection.answer(Call(MessageView, "POST", f"{_path(target_id)}/test", repeatable=False))

    def messages(
        self, *, target_id: str | None = None, user: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[MessageView]:
        """Yields messages of the last 7 days, newest first: of all targets, or of one."""
        params = {"target": target_id, "user": user, "limit": bounded(limit)}
        return self._connection.pages(Call(Page[MessageView], "GET", f"{_PATH}/messages", params), limit=limit)


def _path(target_id: str) -> str:
    return f"{_PATH}/targets/{segment(target_id)}"
