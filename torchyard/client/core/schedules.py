"""Operations on schedules."""

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
    """Operations on schedules. A `schedule_id` is the full id of a schedule.

    Each raises NotFound for a schedule that you may not read, and Forbidden if it changes another user's schedule.
    """

    async def create(self, spec: Spec, *, idempotency_key: str | None = None) -> ScheduleView:
        """Adds a schedule, once even if the connection breaks.

        Args:
            spec: A job spec with the key `schedule`. `init_from` may have a name.
            idempotency_key: A name for this request. For 24 hours, the same spec with the same key returns the same
                schedule.

        Raises:
            InvalidSpec: The spec is not valid. `errors` names each field.
            Conflict: You have 100 schedules.

        Example:
            >>> schedule = client.schedules.create({**spec, "schedule": "0 3 * * *"})
            >>> schedule.state.value, schedule.next_at.minute
            ('active', 0)
        """
        (exact,) = await with_ids(self._connection, [spec])
        content = encoded(exact, what="job spec", most=MOST_SPEC_BYTES)
        headers = {**JSON, **idempotency(idempotency_key)}
        return await self._connection.answer(Call(ScheduleView, "POST", _PATH, content=content, headers=headers))

    async def get(self, ref: str) -> ScheduleView:
        """Returns a schedule.

        Args:
            ref: Its id, its name (the newest schedule with it), or the last four or more digits of its id.

        Raises:
            NotFound: There is no such schedule.
            Conflict: Several schedules have these digits.
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
        """Yields the schedules that you may read, newest first.

        Args:
            owner: Only this user.
        """
        params = {"owner": owner, "limit": LONGEST_PAGE}
        return self._connection.pages(Call(Page[ScheduleSummary], "GET", _PATH, params))

    async def pause(self, schedule_id: str) -> ScheduleView:
        """Pauses a schedule: it submits nothing until `resume`."""
        return await self._connection.answer(_change(schedule_id, paused=True))

    async def resume(self, schedule_id: str) -> ScheduleView:
        """Resumes a schedule from the next scheduled time on.

        Raises:
            InvalidSpec: No scheduled time is left.
        """
        return await self._connection.answer(_change(schedule_id, paused=False))

    async def change(self, schedule_id: str, schedule: str | Mapping[str, Any]) -> ScheduleView:
        """Replaces the times of a schedule.

        Args:
            schedule_id: The schedule's id.
            schedule: A cron expression, or a dict with `cron`, `timezone`, `overlap` and `until`.

        Raises:
            InvalidRequest: The times are not valid.
            InvalidSpec: The times never come.
        """
        return await self._connection.answer(_change(schedule_id, schedule=schedule))

    async def delete(self, schedule_id: str) -> None:
        """Deletes a schedule. The jobs that it submitted stay."""
        await self._connection.send(Call(View, "DELETE", _path(schedule_id), repeatable=False))


def _get(schedule_id: str) -> Call[ScheduleView]:
    return Call(ScheduleView, "GET", _path(schedule_id))


def _change(schedule_id: str, **patch: Any) -> Call[ScheduleView]:
    return Call(ScheduleView, "PATCH", _path(schedule_id), content=json.dumps(patch), headers=JSON)


def _path(schedule_id: str) -> str:
    return f"{_PATH}/{segment(schedule_id)}"
