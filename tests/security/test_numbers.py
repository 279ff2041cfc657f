"""A number that one user chooses does not decide what others pay: of keys, of different requests, of cycles."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from tests.api.service import SPEC, ApiFixture
from torchyard.contract.team.roles import Role

SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}


@pytest.fixture
def viewer(service: ApiFixture) -> Iterator[TestClient]:
    """A client of a viewer, of a service with the default limit on bodies."""
    service.act_as("eve", Role.VIEWER)
    app = create_app(service.settings.model_copy(update={"max_body_bytes": 1_048_576}))
    with TestClient(app, headers={"Authorization": service.client.headers["Authorization"]}) as client:
        yield client


def test_a_viewers_sweep_of_very_many_keys_is_refused_in_a_few_words(viewer: TestClient) -> None:
    """99,000 keys in a point were compared each with each: minutes of a processor."""
    for name in ("1", "labels."):
        body = {"method": "list", "points": [{f"{name}{key}": 1 for key in range(50_000)}], "job": SCRIPT}
        answer = viewer.post("/v1/sweeps/validate", json=body)
        assert answer.status_code == 422
        assert [each["field"] for each in answer.json()["errors"]] == ["points.0"]
        assert len(answer.content) < 1000


def test_cycles_of_a_batch_are_told_in_a_few_words(service: ApiFixture) -> None:
    """1.8 MB took 270 MiB, while nobody else could write."""
    names = [f"{place:0100}" for place in range(200)]
    after = [[{"job": names[(place + step) % 200]} for step in range(1, 33)] for place in range(200)]
    jobs = [{**SPEC, "name": name, "after": its} for name, its in zip(names, after, strict=True)]
    answer = service.client.post("/v1/jobs/batch", json={"jobs": jobs, "atomic": True})
    assert answer.status_code == 422
    assert len(answer.content) < 20_000
    assert len(answer.json()["errors"]) == 10


@pytest.mark.parametrize("method", ["tpe", pytest.param("random", marks=pytest.mark.thorough)])
def test_a_sweep_that_draws_from_very_many_values_is_refused(viewer: TestClient, method: str) -> None:
    """20 keys with 3,000 values each took the controller's only thread for minutes."""
    parameters = {f"args.x{key}": [*range(3000)] for key in range(20)}
    body = {"method": method, "trials": 400, "parameters": parameters, "job": SCRIPT}
    answer = viewer.post("/v1/sweeps/validate", json=body)
    assert answer.status_code == 422
    assert "all together at most 10000" in answer.json()["errors"][0]["message"]
