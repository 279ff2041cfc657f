"""The operations on workers."""

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
    """Operations on what runs the jobs."""

    async def list(self) -> Sequence[WorkerView]:
        """Returns the workers, their devices, and the job that holds each."""
        return [item async for item in self._connection.pages(Call(Page[WorkerView], "GET", "/v1/workers"))]

    async def history(
        self,
        worker_id: str,
        *,
        begins: datetime | None = None,
        ends: datetime | None = None,
        max_points: int | None = None,
    ) -> WorkerHistoryView:
        """Returns how the worker's devices were used, by default in the last hour. Raises NotFound."""
        times = {"from": begins, "to": ends}
        params: dict[str, Any] = {
            name: time.astimezone().isoformat() for name, time in times.items() if time is not None
        }
        params["max_points"] = max_points
        return await self._connection.answer(Call(WorkerHistoryView, "GET", f"{_path(worker_id)}/history", params))

    async def drain(self, worker_id: str) -> WorkerView:
        """Stops the worker from taking jobs; its running jobs are asked to save, and return to the queue.

        Raises Forbidden.
        """
        return await self._connection.answer(Call(WorkerView, "POST", f"{_path(worker_id)}/drain"))

    async def price_of_drain(self, worker_id: str) -> StopView:
        """Returns what a drain of the worker would cost: what its running jobs lose if they do not save first.

        Raises NotFound and Forbidden.
        """
        return await self._connection.answer(Call(StopView, "POST", f"{_path(worker_id)}/drain", {"dry_run": "true"}))

    async def undrain(self, worker_id: str) -> WorkerView:
        """Lets the worker take jobs again. Raises Forbidden."""
        return await self._connection.answer(Call(WorkerView, "POST", f"{_path(worker_id)}/undrain"))

    async def set_users(self, worker_id: str, users: Sequence[str] | None) -> WorkerView:
        """Has the worker take the jobs of these users only; None: of all. Jobs that run there go on.

        Raises NotFound and Forbidden.
        """
        content = json.dumps({"users": None if users is None else [*users]})
        path = f"{_path(worker_id)}/users"
        return await self._connection.answer(Call(WorkerView, "PUT", path, content=content, headers=JSON))

    async def code(self, name: str, *, users: Sequence[str] | None = None) -> NewCodeView:
        """Makes a code by which a machine becomes a worker of this name, once, within ten minutes.

        `users`: those whose jobs the worker takes; None: all. Raises Forbidden.
        """
        return await self._connection.answer(new_code("worker", name, users=users))

    async def remove(self, worker_id: str) -> None:
        """Removes a remote worker, whose jobs return to the queue, or a lost one.

        Raises Forbidden, NotFound, and Conflict for a worker of the service's own hosts that is alive.
        """
        await self._connection.send(Call(View, "DELETE", _path(worker_id), repeatable=False))


def _path(worker_id: str) -> str:
    return f"/v1/workers/{segment(worker_id)}"
