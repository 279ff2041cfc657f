"""The columns of a table of jobs: their values, which there are, and what they tell to whom."""

import math
from typing import Any

import pytest

from store.facts.telemetry import MetricPoint
from tests.api.service import ApiFixture, both_databases
from torchyard.contract.columns import MOST_CHARACTERS, MOST_COLUMNS
from torchyard.contract.job import EndReason
from torchyard.contract.team import Role

MONITORED = {"monitor": "val/accuracy", "mode": "max"}
HOSTILE = [
    'config."optimizer"',
    "config.optimizer.lr'--",
    "config[0]",
    "config.0",
    "$.config",
    "config..lr",
    "config.optimizer.lr ",
    "config.#-1",
    "config.*",
    "config.größe",
    "config.\u202elr",
    "config.a\nb",
    ".".join(["a"] * 64),
    "x" * 301,
    "metric:loss",
    "metric::best",
    "metric:a\x00:best",
    "metric:loss:median",
    "label:",
    "label:a b",
    "label:'",
    "other:x",
    "",
]


def point(key: str, step: int, value: float) -> MetricPoint:
    return MetricPoint(key, step, value, 1)


def rows(service: ApiFixture, *columns: str, **where: Any) -> dict[str, Any]:
    """Returns the values of the columns by the job's name."""
    return {job["name"]: job["columns"] for job in service.get("/v1/jobs", columns=columns, **where)["data"]}


@both_databases
def test_a_list_has_the_columns_that_it_is_asked_for(service: ApiFixture) -> None:
    config = {"optimizer": {"lr": 1e-3}, "training": {"epochs": 7}}
    job = service.submit(name="a", config=config, labels={"team": "x"}, resources={"devices_per_node": 2})
    service.client.patch(f"/v1/jobs/{job['id']}", json={"notes": "\n\n# Warm-up helps\nmore"})
    service.submit(name="b")
    names = ["config.optimizer.lr", "config.training.epochs", "config.training.seed", "resources.devices_per_node"]
    names += ["config.ema.use", "checkpoint", "init_from", "config.no.such", "label:team", "label:none", "notes"]
    found = rows(service, *names)
    assert {name: found["a"][name] for name in names if name not in {"checkpoint", "config.training.seed"}} == {
        "config.optimizer.lr": 1e-3,
        "config.training.epochs": 7,
        "resources.devices_per_node": 2,
        "config.ema.use": None,
        "init_from": None,
        "config.no.such": None,
        "label:team": "x",
        "label:none": None,
        "notes": "# Warm-up helps",
    }
    assert found["a"]["checkpoint"].startswith('{"')
    assert (found["b"]["label:team"], found["b"]["notes"]) == (None, None)
    assert [*found["a"]] == names
    assert "columns" not in service.get("/v1/jobs")["data"][0]


@both_databases
def test_truth_values_lists_and_long_texts_are_told_as_what_they_are(service: ApiFixture) -> None:
    long = "ä" * 1000
    service.submit(name="a", preemptible=True, env={"TZ": long}, config={"model": {"freeze": ["stem"]}})
    found = rows(service, "preemptible", "config.model.freeze", "env.TZ", "config.training.deterministic")["a"]
    assert (found["preemptible"], found["config.training.deterministic"]) == (True, False)
    assert (len(found["env.TZ"]), found["env.TZ"][-2:]) == (MOST_CHARACTERS, "ä…")
    assert found["config.model.freeze"] == '["stem"]'


@both_databases
def test_metrics_have_their_best_last_least_and_greatest_values(service: ApiFixture) -> None:
    job_id = service.submit(name="a", checkpoint=MONITORED)["id"]
    claim = service.start(job_id)
    values = [("val/accuracy", 0.5), ("val/accuracy", 0.9), ("val/accuracy", 0.7), ("val/loss", math.inf)]
    service.record(claim, points=[point(key, step, value) for step, (key, value) in enumerate(values)])
    figures = ("best", "last", "min", "max")
    names = [f"metric:{key}:{figure}" for key in ("val/accuracy", "val/loss", "none") for figure in figures]
    assert [*rows(service, *names)["a"].values()] == [0.9, 0.7, 0.5, 0.9, None, "Infinity", None, None, *[None] * 4]
    saved = [(1, {"val_accuracy": 0.7, "val_loss": 0.3}), (2, {"val_accuracy": 0.8, "val_loss": 0.4})]
    made = [service.new_checkpoint(step=step, files={"state.pt": b"x"}, **found) for step, found in saved]
    service.record(
        claim, checkpoints=made, points=[point("val/loss", 9, math.nan), point("val/loss", 10, -2.0)]
    )
    found = rows(service, *names)["a"]
    assert [found[f"metric:val/accuracy:{figure}"] for figure in figures] == [0.8, 0.7, 0.5, 0.9]
    assert [found[f"metric:val/loss:{figure}"] for figure in figures] == [0.4, -2.0, -2.0, -2.0]


@both_databases
def test_the_columns_that_jobs_have_say_whether_they_differ(service: ApiFixture) -> None:
    claim = service.start(service.submit(config={"optimizer": {"lr": 0.1}}, labels={"team": "x"})["id"])
    service.record(claim, points=[point("train/loss", 1, 0.5), point("a:b", 1, math.nan)])
    job = service.submit(config={"optimizer": {"lr": 0.2}})["id"]
    service.client.patch(f"/v1/jobs/{job}", json={"notes": "good"})
    answer = service.get("/v1/jobs/columns")
    found = {each["name"]: (each["jobs"], each["differs"]) for each in answer["data"]}
    assert answer["jobs"] == 2
    assert found["config.optimizer.lr"] == (2, True)
    assert found["config.training.epochs"] == (2, False)
    assert found["label:team"] == (1, True)
    assert found["metric:train/loss:last"] == (1, True)
    assert found["metric:a:b:last"] == (1, True)
    assert found["notes"] == (1, True)
    assert [*found] == sorted(found)
    assert not any(name.startswith("labels") for name in found)
    assert all(name in rows(service, name)["digits"] for name in found)
    assert service.get("/v1/jobs/columns", label="team:x")["jobs"] == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_no_column_is_refused(service: ApiFixture, name: str) -> None:
    answer = service.client.get("/v1/jobs", params={"columns": ["name", name]})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "columns.1")


def test_thirty_long_columns_are_answered_and_one_more_is_refused(service: ApiFixture) -> None:
    service.submit(name="a")
    names = [f"metric:{'ü' * 190}{number}:max" for number in range(MOST_COLUMNS)]
    assert rows(service, *names)["a"] == dict.fromkeys(names)
    assert service.client.get("/v1/jobs", params={"columns": [*names, "notes"]}).status_code == 422


def test_columns_tell_nothing_of_jobs_that_the_caller_may_not_read(service: ApiFixture) -> None:
    service.act_as("alice")
    job = service.submit(name="hers", labels={"for": "acme"}, env={"TZ": "acme"})["id"]
    service.client.patch(f"/v1/jobs/{job}", json={"notes": "acme"})
    claim = service.start(job)
    service.record(claim, points=[point("acme", 1, 0.5)])
    service.end(claim, reason=EndReason.COMPLETED)
    names = ["label:for", "env.TZ", "notes", "metric:acme:last"]
    service.act_as("olga", Role.OPERATOR)
    assert rows(service, *names) == {"hers": dict.fromkeys(names)}
    for name, role in (("olga", Role.OPERATOR), ("bob", Role.MEMBER)):
        service.act_as(name, role)
        assert service.get("/v1/jobs/columns") == {"data": [], "jobs": 0}


def test_a_variable_of_a_secret_shows_the_name_of_the_secret_alone(service: ApiFixture) -> None:
    assert service.client.put("/v1/secrets/hub", json={"value": "very-hidden"}).status_code in {200, 201, 204}
    job = service.submit(name="a", env={"HF_TOKEN": {"secret": "hub"}})
    found = rows(service, "env.HF_TOKEN", "env.HF_TOKEN.secret")["a"]
    assert found == {"env.HF_TOKEN": '{"secret":"hub"}', "env.HF_TOKEN.secret": "hub"}
    assert job["spec"]["env"] == {"HF_TOKEN": {"secret": "hub"}}
