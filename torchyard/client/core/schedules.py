"""The operations on schedules."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from torchyard.client.calls import schedules as calls
from torchyard.client.calls.call import Spec
from torchyard.client.connection import Connection
from torchyard.client.references import with_ids
from torchyard.client.shortids import is_named, only_id
from torchyard.contract.errors import NotFound
from torchyard.contract.schedules import ScheduleSummary, ScheduleView


class SchedulesCore:
    """Operations over one connection. Each raises NotFound, and Forbidden if it changes a schedule of another user."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, spec: Spec, *, idempotency_key: str | None = None) -> ScheduleView:
        """Adds a schedule: a job spec with its key `schedule`. It is added once even if the connection breaks.

        The `init_from` may have a name, as in `submit`. Raises InvalidSpec, and Conflict if one has too
        many.
        """
        (exact,) = await with_ids(self._connection, [spec])
        return await self._connection.answer(calls.create(exact, key=idempotency_key))

    async def get(self, ref: str) -> ScheduleView:
        """Returns the schedule with the id `ref`, else the newest of that name, else the only one with that short id.

        Raises NotFound, and Conflict if several have it.
        """
        short: dict[str, str] = {}
        async with aclosing(self.list()) as schedules:
            async for schedule in schedules:
                if ref in (schedule.id, schedule.name):
                    return await self._connection.answer(calls.get(schedule.id))
                if is_named(schedule.id, ref):
                    short[schedule.id] = f"{schedule.name}, {schedule.state}"
        found = only_id(ref, short)
        if found is None:
            raise NotFound(f"there is no schedule with the id or name {ref!r}")
        return await self._connection.answer(calls.get(found))

    def list(self, *, owner: str | None = None) -> AsyncGenerator[ScheduleSummary]:
        """Yields the schedules that one may read, newest first."""
        return self._connection.pages(calls.schedules(owner=owner))

    async def pause(self, schedule_id: str) -> ScheduleView:
        """Lets nothing be submitted until `resume`."""
        return await self._connection.answer(calls.change(schedule_id, paused=True))

    async def resume(self, schedule_id: str) -> ScheduleView:
        """Has jobs submitted again, from the next time on. Raises InvalidSpec if there is none."""
        return await self._connection.answer(calls.change(schedule_id, paused=False))

    async def change(self, schedule_id: str, schedule: str | Mapping[str, Any]) -> ScheduleView:
        """Replaces the times: by a cron text, or a whole `schedule`. Raises InvalidRequest and InvalidSpec."""
        return await self._connection.answer(calls.change(schedule_id, schedule=schedule))

    async def delete(self, schedule_id: str) -> None:
        """Removes a schedule. Its runs stay."""
        await self._connection.send(calls.delete(schedule_id))
