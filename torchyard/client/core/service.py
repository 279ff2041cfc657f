"""The operations on the service itself: who asks, what runs, and what was used."""

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
        """Returns the state of each part that the service needs. Raises ServerUnreachable."""
        return parse(await self._connection.send_once(Call(ReadyView, "GET", "/readyz")), ReadyView)

    async def me(self) -> MeView:
        """Returns whose token this client sends, and what it may be used for."""
        return await self._connection.answer(Call(MeView, "GET", "/v1/me"))

    async def login_code(self) -> LoginCodeView:
        """Returns a one-time code, valid for a minute, that logs a browser on this machine in as this client's user.

        Raises Forbidden if the server is on another machine, or behind a proxy.
        """
        return await self._connection.answer(Call(LoginCodeView, "POST", "/v1/session/codes"))

    async def trainers(self) -> Sequence[TrainerView]:
        """Returns the trainers that a job may name, each with the JSON schema of its `config`."""
        return [item async for item in self._connection.pages(Call(Page[TrainerView], "GET", "/v1/trainers"))]

    def queue(self) -> AsyncGenerator[QueueEntry]:
        """Yields the queued jobs in the order in which workers try to start them. A job that does not fit now is
        passed over.
        """
        return self._connection.pages(Call(Page[QueueEntry], "GET", "/v1/queue"))

    def usage(self, *, by: UsageBy = "owner", days: int = 30, owner: str | None = None) -> AsyncGenerator[UsageRow]:
        """Yields what each user had of the devices, by day in the last `days` (1 to 366), and in all.

        By `label`: a row for each label of a user's jobs, for who is no administrator only of their own jobs. Raises
        Forbidden for the labels of another `owner`.
        """
        return self._connection.pages(
            Call(Page[UsageRow], "GET", "/v1/usage", {"by": by, "days": days, "owner": owner})
        )

    async def disk_use(self, *, limit: int = 100) -> DiskUseView:
        """Returns what your jobs take: bytes that are stored of them, and their working folders on hosts.

        It lists the `limit` (at most 1000) jobs that take most.
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
        """Yields what was done, newest first, where every given argument matches. `action` may be a kind: `job`."""
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
