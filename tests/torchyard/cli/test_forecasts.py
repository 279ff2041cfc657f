"""What `submit`, `run`, `validate` and `why` say of a job that waits."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.answered import run
from tests.torchyard.client.answers import JOB, NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer
from torchyard.cli import forecasts
from torchyard.contract.jobs.submissions import ProspectView
from torchyard.contract.queue.views import EstimateView, StartsIfView

SHORTER = StartsIfView(change="time_limit", value="2h", message="with `time_limit` ≤ 2h")
FEWER = StartsIfView(change="devices", value="2", message="on 2 devices")
PREEMPTIBLE = StartsIfView(change="preemptible", value="true", message="if preemptible")
MESSAGE = "needs 4 devices; 2 free on box-a"


def waiting(**found: Any) -> ProspectView:
    return ProspectView(fits=False, code="devices_busy", message=MESSAGE, position=3, **found)


@pytest.mark.parametrize(
    "changes",
    [
        [SHORTER],
        [SHORTER, FEWER],
        [SHORTER, FEWER, PREEMPTIBLE],
    ],
)
def test_each_change_would_do(changes: list[StartsIfView], approved: Approved) -> None:
    assert forecasts.any_of(changes) == approved.of_row("any_of")


def test_who_waits_is_told_place_time_and_changes(approved: Approved) -> None:
    now = datetime.now(UTC)
    at = EstimateView(expected=now, low=None, high=None, made_at=now, held=0, of=12)
    clock = f"{now.astimezone():%H:%M}"
    sure = "low confidence"
    assert "\n".join(forecasts.of_submitted(waiting(estimate=at, starts_if=[FEWER]))) == approved(
        "of_submitted", clock=clock, sure=sure
    )
    assert forecasts.of_spec(waiting(estimate=at))[0].startswith("Position 3 in the queue: would start about ")
    assert forecasts.of_submitted(waiting(later_than=now)) == [approved("of_submitted 2", clock=clock)]
    assert forecasts.of_submitted(waiting()) == [approved("of_submitted 3", message=MESSAGE)]


def test_who_starts_at_once_is_told_nothing_more(approved: Approved) -> None:
    fits = ProspectView(fits=True, position=1)
    assert forecasts.of_submitted(None) == forecasts.of_submitted(fits) == []
    assert forecasts.of_spec(fits) == [approved("of_spec")]
    refused = ProspectView(fits=False, code="quota", message="you may\x1b[2J hold 2 devices at once")
    (line,) = forecasts.of_spec(refused)
    assert line.startswith("You may") and "\x1b" not in line


def test_submit_asks_for_a_forecast_and_prints_it_beside_the_id(server: FakeServer) -> None:
    told = waiting(starts_if=[FEWER]).model_dump(mode="json")
    server.on("/v1/jobs", Answer(job(waits_for=told), 201))
    done = run(server, "submit", "-", stdin='{"trainer": "script"}')
    assert (done.returncode, done.stdout) == (0, "job_1\n")
    assert done.stderr.startswith(f"Position 3 in the queue: {MESSAGE}.\nStarts now on 2 devices.\n")
    assert server.requests[0].query == {"forecast": ["true"]}
    run(server, "submit", "-", "--json", stdin='{"trainer": "script"}')
    assert server.requests[1].query == {}, "who reads JSON may ask with the API"


def test_validate_shows_a_forecast_on_demand(server: FakeServer, approved: Approved) -> None:
    told = waiting(starts_if=[SHORTER]).model_dump(mode="json")
    server.on("/v1/jobs/validate", {"spec": {"trainer": "image-classification"}, "waits_for": told})
    done = run(server, "validate", "-", "--forecast", stdin='{"trainer": "image-classification"}')
    assert server.requests[0].query == {"forecast": ["true"]}
    assert done.stderr == approved("errors")
    assert done.stdout.startswith("trainer: image-classification\n")
    assert "forecast" not in run(server, "validate", "-", stdin='{"trainer": "image-classification"}').stdout
    assert server.requests[1].query == {}


def test_why_names_each_change(server: FakeServer) -> None:
    server.on(JOB, job(state="queued", status_reason={"code": "devices_busy", "message": MESSAGE, "since": NOW}))
    server.on("/v1/workers", page([]))
    changes = [one.model_dump(mode="json") for one in (SHORTER, FEWER)]
    server.on(f"{JOB}/advice", {"headline": "waits for devices", "starts_if": changes})
    lines = run(server, "why", "job_1").stdout.splitlines()
    at = lines.index("starts now with `time_limit` ≤ 2h")
    assert lines[at + 1] == "           on 2 devices"
