"""The operations on targets of notifications, and on messages to them."""

from collections.abc import AsyncGenerator, Sequence

from torchyard.client.calls import notifications as calls
from torchyard.client.connection import Connection
from torchyard.client.shortids import only_id
from torchyard.contract.errors import NotFound
from torchyard.contract.notifications.kinds import EventKind, NotificationScope, TargetJobs, TargetKind
from torchyard.contract.notifications.views import MessageView, NewTargetView, TargetView


class NotificationsCore:
    """Operations over one connection. A target is given by its id, and each raises NotFound without such a target."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def targets(self, *, user: str | None = None) -> AsyncGenerator[TargetView]:
        """Yields one's own targets by name. An administrator may name a user."""
        return self._connection.pages(calls.targets(user=user))

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
        new = calls.add(name=name, address=address, kind=kind, on=kinds, jobs=jobs, scope=scope, user=user)
        return await self._connection.answer(new)

    async def change(
        self, target_id: str, *, on: Sequence[EventKind] | None = None, jobs: TargetJobs | None = None
    ) -> TargetView:
        """Changes what a target is told of."""
        return await self._connection.answer(calls.change(target_id, on=None if on is None else [*on], jobs=jobs))

    async def remove(self, target_id: str) -> None:
        """Removes a target, and gives up what waits for it."""
        await self._connection.send(calls.remove(target_id))

    async def send_test(self, target_id: str) -> MessageView:
        """Has the service send a message that only shows whether it arrives. Raises TooManyRequests."""
        return await self._connection.answer(calls.send_test(target_id))

    def messages(
        self, *, target_id: str | None = None, user: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[MessageView]:
        """Yields messages of the last 7 days, newest first: of all targets, or of one."""
        return self._connection.pages(calls.messages(target_id=target_id, user=user, limit=limit), limit=limit)
