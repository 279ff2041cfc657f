"""How the command line shows until when a host has files that were not kept."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
import time

import pytest

from torchyard.cli import output


def told(until: datetime) -> str:
    text = f"not kept: a/ (1 file, 2 B), still on box-a until {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC: …"
    return output.message({"text": text, "until": until.isoformat()})


@pytest.fixture(autouse=True)
def zone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XYZ-14")  # far ahead of UTC
        time.tzset()
        yield
    time.tzset()


def test_a_time_is_shown_in_the_zone_of_the_machine() -> None:
    noon = datetime.now().astimezone().replace(hour=12, minute=2, second=0, microsecond=0)
    assert told(noon).endswith("box-a until today 12:02: …")
    assert told(noon + timedelta(days=1)).endswith("box-a until tomorrow 12:02: …")
    assert told(noon + timedelta(days=9)).endswith(f"box-a until {noon + timedelta(days=9):%Y-%m-%d} 12:02: …")


def test_a_text_without_a_time_stays_as_it_is() -> None:
    for data in ({"text": "until 2026-11-30 14:02 UTC"}, {"text": "x", "until": "soon"}):
        assert output.message(data) == data["text"]
