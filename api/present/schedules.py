"""The views of schedules."""

from typing import Any, cast

from api.present.times import time, time_or_none
from store.schedules.facts import ScheduleFacts
from torchyard.contract.spec import parse_spec
from torchyard.contract.team import Visibility
from torchyard.contract.views.schedules import (
    RefusedRun,
    ScheduledRun,
    ScheduleReason,
    ScheduleSummary,
    ScheduleView,
)


def schedule(facts: ScheduleFacts) -> ScheduleView:
    """Returns the view of a schedule."""
    return ScheduleView(**_values(facts), spec=parse_spec(facts.spec))


def summary(facts: ScheduleFacts) -> ScheduleSummary:
    """Returns the view of a schedule, as lists show it."""
    return ScheduleSummary(**_values(facts))


def _values(facts: ScheduleFacts) -> dict[str, Any]:
    return {
        "id": facts.id,
        "name": facts.name,
        "owner": facts.owner,
        "visibility": cast("Visibility", facts.visibility),
        "schedule": facts.schedule,
        "state": facts.state,
        "status_reason": _reason(facts),
        "next_at": time_or_none(facts.next_at),
        "last_run": _last_run(facts),
        "skipped": facts.skipped,
        "last_error": _last_error(facts),
        "created_at": time(facts.created_at),
    }


def _reason(facts: ScheduleFacts) -> ScheduleReason | None:
    if facts.reason_code is None or facts.reason_message is None:
        return None
    return ScheduleReason(code=facts.reason_code, message=facts.reason_message)


def _last_run(facts: ScheduleFacts) -> ScheduledRun | None:
    if facts.last_job_id is None or facts.last_due_at is None:
        return None
    return ScheduledRun(job_id=facts.last_job_id, due_at=time(facts.last_due_at))


def _last_error(facts: ScheduleFacts) -> RefusedRun | None:
    error = facts.last_error
    return None if error is None else RefusedRun(code=error["code"], message=error["message"], at=time(error["at"]))
