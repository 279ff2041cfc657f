"""Calls about schedules."""

import json
from typing import Any

from torchyard.client.calls.call import JSON, LONGEST_PAGE, Call, Spec, encoded, idempotency, segment
from torchyard.contract.schedules import ScheduleSummary, ScheduleView
from torchyard.contract.spec.spec import MOST_SPEC_BYTES
from torchyard.contract.wire.view import Page, View

_PATH = "/v1/schedules"


def create(spec: Spec, *, key: str | None) -> Call[ScheduleView]:
    return Call(ScheduleView, "POST", _PATH, content=_encoded(spec), headers={**JSON, **idempotency(key)})


def get(schedule_id: str) -> Call[ScheduleView]:
    return Call(ScheduleView, "GET", _path(schedule_id))


def schedules(*, owner: str | None) -> Call[Page[ScheduleSummary]]:
    return Call(Page[ScheduleSummary], "GET", _PATH, {"owner": owner, "limit": LONGEST_PAGE})


def change(schedule_id: str, **patch: Any) -> Call[ScheduleView]:
    return Call(ScheduleView, "PATCH", _path(schedule_id), content=json.dumps(patch), headers=JSON)


def delete(schedule_id: str) -> Call[View]:
    return Call(View, "DELETE", _path(schedule_id), repeatable=False)


def _encoded(spec: Spec) -> str:
    return encoded(spec, what="job spec", most=MOST_SPEC_BYTES)


def _path(schedule_id: str) -> str:
    return f"{_PATH}/{segment(schedule_id)}"
