"""The form of a schedule. Whether its times ever come is for the service to say."""

from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.contract.specs import IMAGES, refused

WRONG: dict[str, tuple[Any, str]] = {
    "six fields": ("* * * * * *", "schedule.cron"),
    "a word": ("@daily", "schedule.cron"),
    "a path for a zone": ({"cron": "0 3 * * *", "timezone": "../../etc/passwd"}, "schedule.timezone"),
    "a time without its zone": ({"cron": "0 3 * * *", "until": "2030-01-01T00:00:00"}, "schedule.until"),
    "an unknown overlap": ({"cron": "0 3 * * *", "overlap": "kill"}, "schedule.overlap"),
}


@pytest.mark.parametrize(("schedule", "field"), WRONG.values(), ids=WRONG)
def test_what_is_no_schedule_is_refused_by_name(schedule: Any, field: str, approved: Approved) -> None:
    assert refused(IMAGES | {"schedule": schedule}) == {field: approved.of_row("message")}
