"""Operations on workers."""

from collections.abc import Sequence
from datetime import datetime
import json
from typing import Any

from torchyard.client.calls.call import JSON, Call, new_code, segment
from torchyard.client.core.base import Core
from torchyard.contract.cluster.views import WorkerHistoryView, WorkerView
from torchyard.contract.queue.views import StopView
from torchyard.contract.team.views import NewCodeView
from torchyard.contract.wire.view import Page, View


class WorkersCore(Core):
    """Operations on workers. A `worker_id` is the full id of a worker. Changes need the role operator."""

    async def list(self) -> Sequence[WorkerView]:
        """Returns the workers, their devices, and the job on each device.

        Example:
            >>> [(worker.name, len(worker.devices)) for worker in client.workers.list()]
            [('box-a', 2)]
        """
        return [item async for item in self._connection.pages(Call(Page[WorkerView], "GET", "/v1/workers"))]

    async def history(
        self,
        worker_id: str,
        *,
        begins: datetime | None = None,
        ends: datetime | None = None,
        max_points: int | None = None,
    ) -> WorkerHistoryView:
        """Returns the utilization of a worker's devices over time.

        Args:
            worker_id: The worker's id.
            begins: Start of the period; None: one hour ago.
            ends: End of the period; None: now.
            max_points: Maximum number of time slots; None: 1000.

        Raises:
            NotFound: There is no such worker.
        """
        times = {"from": begins, "to": ends}
        params: dict[str, Any] = {
            name: time.astimezone().isoformat() for name, time in times.items() if time is not None
        }
        params["max_points"] = max_points
        return await self._connection.answer(Call(WorkerHistoryView, "GET", f"{_path(worker_id)}/history", params))

    async def drain(self, worker_id: str) -> WorkerView:
        """Drains a worker: it takes no more jobs. Its running jobs save and return to the queue.

        Raises:
            Forbidden: You are not an operator.

        Example:
            >>> (worker,) = client.workers.list()
            >>> client.workers.drain(worker.id).state, client.workers.undrain(worker.id).state
            ('draining', 'ready')
        """
        return await self._connection.answer(Call(WorkerView, "POST", f"{_path(worker_id)}/drain"))

    async def price_of_drain(self, worker_id: str) -> StopView:
        """Returns the work that a drain would lose if the running jobs did not save. Changes nothing.

        Raises:
            NotFound: There is no such worker.
            Forbidden: You are not an operator.
        """
        return await self._connection.answer(Call(StopView, "POST", f"{_path(worker_id)}/drain", {"dry_run": "true"}))

    async def undrain(self, worker_id: str) -> WorkerView:
        """Ends a drain: the worker takes jobs again.

        Raises:
            Forbidden: You are not an operator.
        """
        return await self._connection.answer(Call(WorkerView, "POST", f"{_path(worker_id)}/undrain"))

    async def set_users(self, worker_id: str, users: Sequence[str] | None) -> WorkerView:
        """Restricts a worker to the jobs of some users. Running jobs continue.

        Args:
            worker_id: The worker's id.
            users: Names of users; None: all users.

        Raises:
            NotFound: There is no such worker.
            Forbidden: You are not an operator.
        """
        content = json.dumps({"users": None if users is None else [*users]})
        path = f"{_path(worker_id)}/users"
        return await self._connection.answer(Call(WorkerView, "PUT", path, content=content, headers=JSON))

    async def code(self, name: str, *, users: Sequence[str] | None = None) -> NewCodeView:
        """Makes a one-time code with which a machine joins as a worker. It is valid for ten minutes.

        Args:
            name: The name of the worker.
            users: Users whose jobs it takes; None: all users.

        Raises:
            Forbidden: You are not an administrator.

        Example:
            >>> client.workers.code("box-b").code.count(".")
            2
        """
        return await self._connection.answer(new_code("worker", name, users=users))

    async def remove(self, worker_id: str) -> None:
        """Removes a remote or lost worker. Its jobs return to the queue.

        Raises:
            Forbidden: You are not an operator.
            NotFound: There is no such worker.
            Conflict: The worker runs on a host of the service and is alive.
        """
        await self._connection.send(Call(View, "DELETE", _path(worker_id), repeatable=False))


def _path(worker_id: str) -> str:
    return f"/v1/workers/{segment(worker_id)}"
