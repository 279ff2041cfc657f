"""The operations on schedules."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
import json
from typing import Any

from torchyard.client.calls.call import JSON, LONGEST_PAGE, Call, Spec, encoded, idempotency, segment
from torchyard.client.core.base import Core
from torchyard.client.references import with_ids
from torchyard.client.shortids import is_named, only_id
from torchyard.contract.errors import NotFound
from torchyard.contract.schedules import ScheduleSummary, ScheduleView
from torchyard.contract.spec.spec import MOST_SPEC_BYTES
from torchyard.contract.wire.view import Page, View

_PATH = "/v1/schedules"


class SchedulesCore(Core):
    """Operations over one connection. Each raises NotFound, and Forbidden if it changes a schedule of another user."""

    async def create(self, spec: Spec, *, idempotency_key: str | None = None) -> ScheduleView:
        """Adds a schedule: a job spec with its key `schedule`. It is added once even if the connection breaks.

        The `init_from` may have a name, as in `submit`. Raises InvalidSpec, and Conflict if one has too
        many.
        """
        (exact,) = await with_ids(self._connection, [spec])
        content = encoded(exact, what="job spec", most=MOST_SPEC_BYTES)
        headers = {**JSON, **idempotency(idempotency_key)}
        return await self._connection.answer(Call(ScheduleView, "POST", _PATH, content=content, headers=headers))

    async def get(self, ref: str) -> ScheduleView:
        """Returns the schedule with the id `ref`, else the newest of that name, else the only one with that short id.

        Raises NotFound, and Conflict if several have it.
        """
        short: dict[str, str] = {}
        async with aclosing(self.list()) as schedules:
            async for schedule in schedules:
                if ref in (schedule.id, schedule.name):
                    return await self._connection.answer(_get(schedule.id))
                if is_named(schedule.id, ref):
                    short[schedule.id] = f"{schedule.name}, {schedule.state}"
        found = only_id(ref, short)
        if found is None:
            raise NotFound(f"there is no schedule with the id or name {ref!r}")
        return await self._connection.answer(_get(found))

    def list(self, *, owner: str | None = None) -> AsyncGenerator[ScheduleSummary]:
        """Yields the schedules that one may read, newest first."""
        params = {"owner": owner, "limit": LONGEST_PAGE}
        return self._connection.pages(Call(Page[ScheduleSummary], "GET", _PATH, params))

    async def pause(self, schedule_id: str) -> ScheduleView:
        """Lets nothing be submitted until `resume`."""
        return await self._connection.answer(_change(schedule_id, paused=True))

    async def resume(self, schedule_id: str) -> ScheduleView:
        """Has jobs submitted again, from the next time on. Raises InvalidSpec if there is none."""
        return await self._connection.answer(_change(schedule_id, paused=False))

    async def change(self, schedule_id: str, schedule: str | Mapping[str, Any]) -> ScheduleView:
        """Replaces the times: by a cron text, or a whole `schedule`. Raises InvalidRequest and InvalidSpec."""
        return await self._connection.answer(_change(schedule_id, schedule=schedule))

    async def delete(self, schedule_id: str) -> None:
        """Removes a schedule. Its runs stay."""
        await self._connection.send(Call(View, "DELETE", _path(schedule_id), repeatable=False))


def _get(schedule_id: str) -> Call[ScheduleView]:
    return Call(ScheduleView, "GET", _path(schedule_id))


def _change(schedule_id: str, **patch: Any) -> Call[ScheduleView]:
    return Call(ScheduleView, "PATCH", _path(schedule_id), content=json.dumps(patch), headers=JSON)


def _path(schedule_id: str) -> str:
    return f"{_PATH}/{segment(schedule_id)}"
