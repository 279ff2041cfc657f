"""The operations on workers, trainers and the service."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

from torchyard.client.calls import cluster as calls
from torchyard.client.calls import usage as usage_calls
from torchyard.client.calls.usage import UsageBy
from torchyard.client.core.base import Core
from torchyard.client.responses import parse
from torchyard.contract.cluster.usage import DiskUseView, UsageRow
from torchyard.contract.cluster.views import ReadyView, TrainerView, WorkerHistoryView, WorkerView
from torchyard.contract.queue.views import StopView


class ClusterCore(Core):
    """Operations on what runs the jobs."""

    async def trainers(self) -> Sequence[TrainerView]:
        """Returns the trainers that a job may name, each with the JSON schema of its `config`."""
        return [item async for item in self._connection.pages(calls.trainers())]

    async def workers(self) -> Sequence[WorkerView]:
        """Returns the workers, their devices, and the job that holds each."""
        return [item async for item in self._connection.pages(calls.workers())]

    async def worker_history(
        self,
        worker_id: str,
        *,
        begins: datetime | None = None,
        ends: datetime | None = None,
        max_points: int | None = None,
    ) -> WorkerHistoryView:
        """Returns how the worker's devices were used, by default in the last hour. Raises NotFound."""
        call = calls.worker_history(worker_id, begins=begins, ends=ends, max_points=max_points)
        return await self._connection.answer(call)

    def usage(self, *, by: UsageBy = "owner", days: int = 30, owner: str | None = None) -> AsyncGenerator[UsageRow]:
        """Yields what each user had of the devices, by day in the last `days` (1 to 366), and in all.

        By `label`: a row for each label of a user's jobs, for who is no administrator only of their own jobs. Raises
        Forbidden for the labels of another `owner`.
        """
        return self._connection.pages(usage_calls.usage(by=by, days=days, owner=owner))

    async def disk_use(self, *, limit: int = 100) -> DiskUseView:
        """Returns what your jobs take: bytes that are stored of them, and their working folders on hosts.

        It lists the `limit` (at most 1000) jobs that take most.
        """
        return await self._connection.answer(usage_calls.disk_use(limit=limit))

    async def drain(self, worker_id: str) -> WorkerView:
        """Stops the worker from taking jobs; its running jobs are asked to save, and return to the queue.

        Raises Forbidden.
        """
        return await self._connection.answer(calls.drain(worker_id))

    async def price_of_drain(self, worker_id: str) -> StopView:
        """Returns what a drain of the worker would cost: what its running jobs lose if they do not save first.

        Raises NotFound and Forbidden.
        """
        return await self._connection.answer(calls.price_of_drain(worker_id))

    async def undrain(self, worker_id: str) -> WorkerView:
        """Lets the worker take jobs again. Raises Forbidden."""
        return await self._connection.answer(calls.undrain(worker_id))

    async def ready(self) -> ReadyView:
        """Returns the state of each part that the service needs. Raises ServerUnreachable."""
        call = calls.ready()
        return parse(await self._connection.send_once(call), call.view)
