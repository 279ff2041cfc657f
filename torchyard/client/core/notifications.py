"""Operations on notification channels and their messages."""

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
    """Operations on notification channels. A `target_id` is the full id of a channel.

    Each raises NotFound if there is no such channel.
    """

    def targets(self, *, user: str | None = None) -> AsyncGenerator[TargetView]:
        """Yields your notification channels by name.

        Args:
            user: The channels of this user (administrators only).
        """
        return self._connection.pages(Call(Page[TargetView], "GET", f"{_PATH}/targets", {"user": user}))

    async def find(self, ref: str, *, user: str | None = None) -> TargetView:
        """Returns a notification channel.

        Args:
            ref: Its name, its id, or the last four or more digits of its id.
            user: The owner (administrators only); None: you.
        """
        found = {target.id: target async for target in self.targets(user=user)}
        named = next((target for target in found.values() if target.name == ref), None)
        target_id = only_id(ref, {target.id: target.name for target in found.values()}) if named is None else named.id
        if target_id is None:
            raise NotFound(f"there is no notification channel with the name or id {ref!r}")
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
        """Adds a notification channel. Only this answer has the secret that signs a webhook.

        Args:
            name: The name.
            address: A URL (`https://…`), or an email address for `mail`.
            kind: `webhook`, `slack`, `discord` or `mail` (administrators only).
            on: Events such as `job.failed`; None: `job.failed`, `job.succeeded` and `sweep.finished`.
            jobs: `all`, or `named`: only jobs that name the channel in `notify`.
            scope: `own`, or `all` (administrators only): also jobs of the team, and lost workers.
            user: The owner (administrators only); None: you.

        Raises:
            Conflict: You have a channel with this name.
            Forbidden: Only an administrator may do this.

        Example:
            >>> channel = client.notifications.add("alerts", "https://example.com/hook", on=["job.failed"])
            >>> channel.name
            'alerts'
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
        """Changes a notification channel. Omitted fields stay.

        Args:
            target_id: The channel's id.
            on: The events.
            jobs: `all` or `named`.
        """
        content = json.dumps(given({"on": None if on is None else [*on], "jobs": jobs}))
        return await self._connection.answer(Call(TargetView, "PATCH", _path(target_id), content=content, headers=JSON))

    async def remove(self, target_id: str) -> None:
        """Deletes a notification channel and its waiting messages."""
        await self._connection.send(Call(View, "DELETE", _path(target_id), repeatable=False))

    async def send_test(self, target_id: str) -> MessageView:
        """Sends a test message.

        Raises:
            TooManyRequests: You have sent 60 messages in an hour.
        """
        return await self._connection.answer(Call(MessageView, "POST", f"{_path(target_id)}/test", repeatable=False))

    def messages(
        self, *, target_id: str | None = None, user: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[MessageView]:
        """Yields the messages of the last 7 days, newest first.

        Args:
            target_id: Only messages to this channel.
            user: The messages of this user (administrators only).
            limit: Maximum number of messages; None: all.
        """
        params = {"target": target_id, "user": user, "limit": bounded(limit)}
        return self._connection.pages(Call(Page[MessageView], "GET", f"{_PATH}/messages", params), limit=limit)


def _path(target_id: str) -> str:
    return f"{_PATH}/targets/{segment(target_id)}"
