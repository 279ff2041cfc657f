"""The columns of a table of jobs: their values, which there are, and what they tell to whom."""

import math
from typing import Any

import pytest

from store.jobs import known_columns
from store.jobs import table as job_table
from store.jobs.facts import Order
from store.output.facts import MetricPoint
from store.team.callers import SERVICE
from tests.api.service import ApiFixture, both_databases
from tests.api.test_sweeps import control
from tests.rows import each_row
from torchyard.contract.jobs.columns import MOST_CHARACTERS, MOST_COLUMNS, parse_column
from torchyard.contract.jobs.filters import JobQuery
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Role

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
    made = [service.new_checkpoint(step=step, epoch=None, files={"state.pt": b"x"}, **found) for step, found in saved]
    service.record(claim, checkpoints=made, points=[point("val/loss", 9, math.nan), point("val/loss", 10, -2.0)])
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


def test_names_that_one_job_alone_has_hide_none_and_are_not_all_remembered(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_table, "_SPECS_AT_ONCE", 2)
    service.submit()
    service.submit()
    usual = {each["name"] for each in service.get("/v1/jobs/columns")["data"]}
    monkeypatch.setattr(known_columns, "_MOST_KEPT", len(usual) + 5)
    for job in "abcd":
        claim = service.start(service.submit()["id"])
        service.record(claim, points=[point(f"{job}/{number}", 1, 0.5) for number in range(50)])
        service.end(claim, reason=EndReason.COMPLETED)
    found = {each["name"] for each in service.get("/v1/jobs/columns")["data"]}
    assert usual <= found
    assert len(found - usual) <= 5


@each_row("name", HOSTILE)
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


def with_lr(service: ApiFixture, name: str, lr: Any, **spec: Any) -> str:
    return service.submit(name=name, config={"optimizer": {"lr": lr}}, **spec)["id"]


def in_pages(service: ApiFixture, **params: Any) -> str:
    """Returns the names of all pages of two jobs, of one letter each."""
    shown, after = "", None
    while True:
        page = service.get("/v1/jobs", limit=2, **params, **({} if after is None else {"after": after}))
        shown += "".join(job["name"] for job in page["data"])
        after = page["next"]
        if after is None:
            assert not page["has_more"]
            return shown


@both_databases
def test_a_list_is_sorted_by_a_column_over_pages_and_what_has_no_value_is_last(service: ApiFixture) -> None:
    for name, lr, labels in (("a", 0.1, {"x": "B"}), ("b", 0.001, {"x": "a"}), ("c", 0.01, {}), ("d", 0.1, {})):
        with_lr(service, name, lr, labels=labels)
    values = {"a": math.nan, "b": math.inf, "c": 2.0, "d": -1.0}
    for job in service.get("/v1/jobs")["data"]:
        claim = service.start(job["id"])
        service.record(claim, points=[point("m", 1, values[job["name"]])])
        service.end(claim, reason=EndReason.COMPLETED)
    service.submit(name="e", trainer="image-classification", max_restarts=5)
    orders = {
        "config.optimizer.lr": "becda",  # 0.002 is the default of e
        "-config.optimizer.lr": "daceb",
        "label:x": "baedc",
        "-label:x": "abedc",
        "metric:m:last": "dcbae",
        "-metric:m:last": "bcdae",
        "config.none.such": "edcba",
    }
    for sort, names in orders.items():
        assert "".join(job["name"] for job in service.get("/v1/jobs", sort=sort)["data"]) == names, sort
        assert in_pages(service, sort=sort, columns=["config.optimizer.lr"]) == names, sort
    assert service.get("/v1/jobs", sort="label:x", counts=True)["total"] == 5
    assert service.get("/v1/jobs", sort="label:x")["list_complete"] is True
    assert service.get("/v1/jobs")["list_complete"] is None


def test_only_the_newest_jobs_are_sorted_by_a_column_and_the_answer_says_so(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        with_lr(service, name, 0.1, labels={"x": name})
    monkeypatch.setattr(job_table, "_ARRANGED", 3)
    monkeypatch.setattr(job_table, "_AT_ONCE", 2)
    found = service.get("/v1/jobs", sort="label:x")
    assert ("".join(job["name"] for job in found["data"]), found["list_complete"]) == ("bcd", False)
    grouped = service.get("/v1/jobs", group_by="label:x")
    assert ([group["value"] for group in grouped["groups"]], grouped["groups_complete"]) == ([*"bcd"], False)


def test_a_job_that_goes_between_pages_hides_no_other(service: ApiFixture) -> None:
    ids = {name: with_lr(service, name, lr) for name, lr in (("a", 1e-5), ("b", 1e-4), ("c", 1e-3), ("d", 1e-2))}
    first = service.get("/v1/jobs", sort="config.optimizer.lr", limit=2)
    service.client.post(f"/v1/jobs/{ids['b']}/cancel")
    assert service.client.delete(f"/v1/jobs/{ids['b']}").status_code == 204
    rest = service.get("/v1/jobs", sort="config.optimizer.lr", limit=2, after=first["next"])
    assert [job["name"] for job in rest["data"]] == ["d"]  # at the place where the page before ended


@both_databases
def test_groups_tell_the_spread_of_the_columns_and_list_their_jobs(service: ApiFixture) -> None:
    for name, lr, value in (("a", 0.1, 1.0), ("b", 0.1, 3.0), ("c", 0.01, 5.0), ("d", 0.01, math.nan)):
        claim = service.start(
            with_lr(service, name, lr, labels={"team": "x"}, env={"TZ": "UTC"} if name == "a" else {})
        )
        service.record(claim, points=[point("m", 1, value)])
        service.end(claim, reason=EndReason.COMPLETED)
    found = service.get("/v1/jobs", group_by="config.optimizer.lr", columns=["metric:m:last", "label:team"], limit=1)
    spreads = {group["value"]: group["columns"] for group in found["groups"]}
    numbers = {"count": 2, "mean": 2.0, "std": pytest.approx(math.sqrt(2)), "min": 1.0, "max": 3.0}
    assert spreads == {
        "0.1": {"metric:m:last": numbers},
        "0.01": {"metric:m:last": {"count": 1, "mean": 5.0, "std": None, "min": 5.0, "max": 5.0}},
    }
    assert [(group["key"], group["total"], group["counts"]) for group in found["groups"]] == [
        ("=0.01", 2, {"succeeded": 2}),
        ("=0.1", 2, {"succeeded": 2}),
    ]
    assert "columns" not in service.get("/v1/jobs", group_by="env.TZ")["groups"][0]
    assert in_pages(service, group_by="config.optimizer.lr", in_group="=0.1") == "ba"
    assert in_pages(service, group_by="config.optimizer.lr", in_group="=0.1", sort="name") == "ab"
    assert in_pages(service, group_by="config.optimizer.lr", in_group="=0.1", sort="metric:m:last") == "ab"
    assert in_pages(service, group_by="env.TZ", in_group="-") == "dcb"
    assert in_pages(service, group_by="env.TZ", in_group="=none") == ""


def test_numbers_as_large_as_floats_are_have_a_spread(service: ApiFixture) -> None:
    spreads = {
        "a": ([1e308, 1.5e308], 1.25e308, 0.5e308 / math.sqrt(2)),
        "b": ([1.7e308, -1.7e308], 0.0, None),
        "c": ([0.0, -0.0], 0.0, 0.0),
    }
    for place in range(2):
        claim = service.start(service.submit(labels={"team": "x"})["id"])
        service.record(claim, points=[point(key, 1, values[place]) for key, (values, _, _) in spreads.items()])
        service.end(claim, reason=EndReason.COMPLETED)
    columns = {f"metric:{key}:last": (mean, std) for key, (_, mean, std) in spreads.items()}
    [group] = service.get("/v1/jobs", group_by="label:team", columns=[*columns])["groups"]
    for name, (mean, std) in columns.items():
        found = group["columns"][name]
        assert (found["mean"], found["std"]) == (mean, std if std is None else pytest.approx(std)), name


def test_the_jobs_of_a_sweep_are_a_group_with_its_name(service: ApiFixture) -> None:
    config = {"data": {"source": "digits"}}
    job = {"trainer": "image-classification", "config": config}
    sweep = {"name": "rates", "job": job, "parameters": {"config.optimizer.lr": [0.1, 0.2]}}
    made = service.client.post("/v1/sweeps", json=sweep)
    assert made.status_code == 201, made.text
    control(service)
    service.submit()
    groups = service.get("/v1/jobs", group_by="sweep", columns=["sweep"])["groups"]
    told = [(group["value"], group["name"], group["total"]) for group in groups]
    assert told == [(made.json()["id"], "rates", 2), (None, None, 1)]


@each_row(
    ("params", "field"),
    [
        ({"group_by": "name"}, "group_by"),
        ({"group_by": "config.a'b"}, "group_by"),
        ({"group_by": "metric:m:last"}, "group_by"),
        ({"in_group": "=1"}, "in_group"),
        ({"group_by": "sweep", "in_group": "1"}, "in_group"),
        ({"sort": "config.a[0]"}, "sort"),
        ({"sort": "--config.a.b"}, "sort"),
        ({"sort": "notes"}, "sort"),
    ],
)
def test_a_wrong_order_or_group_is_refused(service: ApiFixture, params: dict[str, str], field: str) -> None:
    answer = service.client.get("/v1/jobs", params=params)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


def test_an_order_by_a_column_takes_no_cursor_of_another(service: ApiFixture) -> None:
    for _ in range(2):
        service.submit()
    cursor = service.get("/v1/jobs", sort="name", limit=1)["next"]
    answer = service.client.get("/v1/jobs", params={"sort": "config.optimizer.lr", "after": cursor})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")
    cursor = service.get("/v1/jobs", sort="config.optimizer.lr", limit=1)["next"]
    assert service.client.get("/v1/jobs", params={"sort": "name", "after": cursor}).status_code == 422


def test_orders_and_groups_tell_nothing_of_jobs_that_the_caller_may_not_read(service: ApiFixture) -> None:
    service.act_as("alice")
    for name, lr in (("a", 0.2), ("b", 0.1)):
        with_lr(service, name, lr)
    service.act_as("olga", Role.OPERATOR)
    with_lr(service, "c", 0.3)
    for sort in ("config.optimizer.lr", "-config.optimizer.lr"):
        assert in_pages(service, sort=sort) == "cba"  # hers, and the others newest first
    found = service.get("/v1/jobs", group_by="config.optimizer.lr", columns=["config.optimizer.lr"])["groups"]
    assert [group["value"] for group in found] == ["0.3"]
    assert in_pages(service, group_by="config.optimizer.lr", in_group="=0.1") == ""
    assert in_pages(service, group_by="env.TZ", in_group="-") == "c"


def test_others_have_their_turn_between_parts_of_an_order_and_of_groups(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcde":
        with_lr(service, name, 0.1)
    monkeypatch.setattr(job_table, "_AT_ONCE", 2)
    store, where, lr = service.app.state.services.store, JobQuery(), parse_column("config.optimizer.lr")
    order = Order(lr, reverse=False)
    assert len([*job_table.list_arranged(store, where, caller=SERVICE, limit=2, sort=order)]) == 3
    assert len([*job_table.group_jobs(store, where, caller=SERVICE, by=lr, columns=[lr])]) == 3
