"""The maximums of the service are those of every spec that is sent, wherever it is sent to."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.api.service import SPEC, ApiFixture
from tests.approved import Approved
from tests.rows import each_row

CRON = {"schedule": {"cron": "0 3 * * *"}}
POINTS = [{"config.training.epochs": 1}]


@pytest.fixture
def limited(service: ApiFixture) -> ApiFixture:
    settings = service.settings.model_copy(update={"max_idle_timeout": timedelta(hours=1)})
    service.app.state.services = replace(service.app.state.services, settings=settings)
    return service


def bodies(**spec: Any) -> dict[str, Any]:
    """Returns what is sent to each route that takes a job spec, by its path."""
    job = SPEC | spec
    return {
        "/v1/jobs": job,
        "/v1/jobs/validate": job,
        "/v1/jobs/batch": {"jobs": [job], "atomic": True},
        "/v1/schedules": job | CRON,
        "/v1/sweeps": {"job": job, "method": "list", "points": POINTS},
        "/v1/sweeps/validate": {"job": job, "method": "list", "points": POINTS},
    }


@each_row("path", [*bodies()])
def test_a_longer_idle_timeout_is_refused_by_name(limited: ApiFixture, path: str, approved: Approved) -> None:
    answer = limited.client.post(path, json=bodies(idle_timeout="2h")[path])
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["field"].endswith("idle_timeout")
    assert error["message"] == approved("message")


def test_a_job_that_waits_in_the_folder_of_another_one_has_the_maximum_too(limited: ApiFixture) -> None:
    script = {"trainer": "script", "config": {"code": "file:///code"}}
    old = limited.client.post("/v1/jobs", json=script).json()["id"]
    limited.client.post(f"/v1/jobs/{old}/cancel")
    limits = {"time_limit": "8h", "idle_timeout": "2h"}
    answer = limited.client.post(f"/v1/jobs/{old}/retry", json={"dev": limits})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "idle_timeout")
    answer = limited.client.post(f"/v1/jobs/{old}/retry", json={"dev": {**limits, "idle_timeout": "1h"}})
    assert answer.status_code == 201, answer.text


def test_a_job_without_one_gets_the_maximum(limited: ApiFixture) -> None:
    made = limited.client.post("/v1/jobs", json=SPEC).json()
    assert limited.get(f"/v1/jobs/{made['id']}")["spec"]["idle_timeout"] == "1h"
    own = limited.client.post("/v1/jobs", json=SPEC | {"idle_timeout": "5m"}).json()
    assert limited.get(f"/v1/jobs/{own['id']}")["spec"]["idle_timeout"] == "5m"
    swept = limited.client.post("/v1/sweeps", json=bodies()["/v1/sweeps"]).json()
    assert swept["spec"]["job"]["idle_timeout"] == "1h"
