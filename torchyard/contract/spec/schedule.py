"""The key `schedule` of a job spec: when the service submits the job again and again."""

from datetime import datetime
import re
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field

from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.wording import allowing

_PART = "[0-9A-Za-z*?,/#-]+"
CRON = allowing(
    f"^{_PART}( +{_PART}){{4}}$",
    "five fields: minute, hour, day of the month, month and day of the week, such as 0 3 * * *",
)
_ZONE = allowing("^[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}$", "the name of a time zone: UTC, Europe/Berlin")
Cron = Annotated[str, Field(pattern=CRON, max_length=200)]
Overlap = Literal["skip", "queue", "cancel"]


def _whole(value: Any) -> Any:
    return {"cron": value} if isinstance(value, str) else value


def _instant(value: Any) -> Any:
    if isinstance(value, str) and re.match("[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]", value):
        return datetime.fromisoformat(value)
    return value


class Schedule(Schema):
    """The times at which a job is submitted."""

    cron: Cron = Field(description="minute, hour, day of the month, month and day of the week, such as `0 3 * * *`")
    timezone: Annotated[str, Field(pattern=_ZONE, max_length=100)] = Field(
        default="UTC", description="time zone of the times, such as `Europe/Berlin`"
    )
    overlap: Overlap = Field(
        default="skip",
        description="if the previous run has not ended: `skip` this run; `queue` it until then (at most one run "
        "waits); or `cancel` the previous run",
    )
    until: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = Field(
        default=None, description="time of the last run at the latest (RFC 3339)"
    )


ScheduleKey = Annotated[Schedule, BeforeValidator(_whole, json_schema_input_type=Schedule | Cron)]
"""A schedule, or its `cron` alone."""
