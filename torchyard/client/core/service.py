"""Operations on the service: its state, the caller, the queue, the usage and the audit log."""

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Literal

from torchyard.client.calls.call import Call, Params, bounded
from torchyard.client.core.base import Core
from torchyard.client.responses import parse
from torchyard.contract.cluster.usage import DiskUseView, UsageRow
from torchyard.contract.cluster.views import ReadyView, TrainerView
from torchyard.contract.queue.views import QueueEntry
from torchyard.contract.team.views import AuditView, LoginCodeView, MeView
from torchyard.contract.wire.view import Page

UsageBy = Literal["owner", "label"]
"""What a row of usage is about: a user, or one label of a user's jobs."""


class ServiceCore(Core):
    """Operations on the service."""

    async def ready(self) -> ReadyView:
        """Returns the state of the database and of Redis.

        Raises:
            ServerUnreachable: The service does not answer.

        Example:
            >>> client.ready().status
            'ok'
        """
        return parse(await self._connection.send_once(Call(ReadyView, "GET", "/readyz")), ReadyView)

    async def me(self) -> MeView:
        """Returns your name and role, and the scopes of the client's token.

        Example:
            >>> client.me().role.value
            'admin'
        """
        return await self._connection.answer(Call(MeView, "GET", "/v1/me"))

    async def login_code(self) -> LoginCodeView:
        """Returns a one-time code that logs in a browser on this machine. It is valid for one minute.

        Raises:
            Forbidden: The service is on another machine, or behind a proxy.
        """
        return await self._connection.answer(Call(LoginCodeView, "POST", "/v1/session/codes"))

    async def trainers(self) -> Sequence[TrainerView]:
        """Returns the trainers that a job may name, each with the JSON schema of its `config`.

        Example:
            >>> [trainer.name for trainer in client.trainers()][:2]
            ['image-classification', 'segmentation']
        """
        return [item async for item in self._connection.pages(Call(Page[TrainerView], "GET", "/v1/trainers"))]

    def queue(self) -> AsyncGenerator[QueueEntry]:
        """Yields the queued jobs in queue order, each with the reason why it waits. A job that fits may start before an
        earlier one that does not.

        Example:
            >>> waiting = client.submit(spec)
            >>> [entry.position for entry in client.queue()]
            [1]
        """
        return self._connection.pages(Call(Page[QueueEntry], "GET", "/v1/queue"))

    def usage(self, *, by: UsageBy = "owner", days: int = 30, owner: str | None = None) -> AsyncGenerator[UsageRow]:
        """Yields the device-hours of each user, for each day, for the period, and in total.

        Args:
            by: `owner`: one row for each user; `label`: one row for each label of your jobs (of all jobs for
                administrators).
            days: The last days, 1 to 366.
            owner: Only this user.

        Raises:
            Forbidden: You asked for the labels of another user.

        Example:
            >>> [row.owner for row in client.usage(days=7)]
            ['admin']
        """
        return self._connection.pages(
            Call(Page[UsageRow], "GET", "/v1/usage", {"by": by, "days": days, "owner": owner})
        )

    async def disk_use(self, *, limit: int = 100) -> DiskUseView:
        """Returns the disk use of your jobs: stored bytes, and working folders on hosts.

        Args:
            limit: List this many largest jobs, at most 1000.

        Example:
            >>> client.disk_use(limit=10).stored_bytes > 0
            True
        """
        return await self._connection.answer(Call(DiskUseView, "GET", "/v1/usage/disk", {"limit": limit}))

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
        """Yields the entries of the audit log that match every argument, newest first.

        Args:
            who: Only this user.
            action: Only this action, such as `job.cancel`; `job` is all actions on jobs.
            object: Only entries about the object with this id.
            outcome: `ok`, or the code of an error.
            since: Only entries at or after this time.
            until: Only entries at or before this time.
            limit: Maximum number of entries; None: all.

        Example:
            >>> [entry.action for entry in client.audit(action="job.submit", limit=1)]
            ['job.submit']
        """
        begins, ends = (None if time is None else time.astimezone(UTC).isoformat() for time in (since, until))
        params: Params = {
            "who": who,
            "action": action,
            "object": object,
            "outcome": outcome,
            "limit": bounded(limit),
            "from": begins,
            "to": ends,
        }
        return self._connection.pages(Call(Page[AuditView], "GET", "/v1/audit", params), limit=limit)
