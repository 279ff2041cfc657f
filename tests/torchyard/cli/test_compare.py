"""`compare` puts jobs side by side, against a server that answers as documented."""

from collections.abc import Iterator
import json
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client.answers import job
from tests.torchyard.client.fake_server import TOKEN, FakeServer, serving

HOSTILE = "before\x1b]52;c;aGk=\x07\x1b[2Jafter"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


def _run(server: FakeServer, *arguments: str) -> CompletedProcess[str]:
    return run_in_process(arguments, environment(server.url, TOKEN))


def serve(server: FakeServer, *jobs: dict[str, Any], **latest: dict[str, Any]) -> None:
    """Answers with these jobs and the newest values of their metrics, by id."""
    for one in jobs:
        server.on(f"/v1/jobs/{one['id']}", one)
    keys = {name: [{"key": key, "count": 1, "latest": value} for key, value in latest[name].items()] for name in latest}
    listed = [{"job_id": one["id"], "position": 1, "keys": keys.get(one["id"], [])} for one in jobs]
    server.on("/v1/metrics", {"jobs": listed, "series": [], "max_points": 1500})


def spec(epochs: int, lr: float) -> dict[str, Any]:
    config = {"training": {"epochs": epochs}, "optimizer": {"lr": lr}}
    return {"trainer": "image-classification", "config": config}


def test_the_shared_metrics_and_the_settings_that_differ_are_shown(server: FakeServer) -> None:
    best = {"metric": "val/loss", "value": 0.25, "epoch": 1, "step": 5, "checkpoint_id": "ckpt_1"}
    serve(
        server,
        job(id="job_1", name="short", state="succeeded", spec=spec(1, 0.1), best=best),
        job(id="job_2", name="long", state="running", spec=spec(9, 0.1)),
        job_1={"train/loss": 0.5, "val/loss": 0.25},
        job_2={"lr": 0.1, "train/loss": "NaN"},
    )
    done = _run(server, "compare", "job_1", "job_2")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines == [
        ["ID", "NAME", "STATE", "BEST", "train/loss"],
        ["job_1", "short", "succeeded", "0.25", "val/loss", "0.5"],
        ["job_2", "long", "running", "-", "NaN"],
        [],
        ["SETTING", "short", "long"],
        ["config.training.epochs", "1", "9"],
    ]
    assert server.requests[-1].query == {"job": ["job_1", "job_2"]}


def test_a_job_without_metrics_is_offered_those_of_its_log(server: FakeServer) -> None:
    """`metrics` and `compare` say what `why` says."""
    serve(server, job(id="job_1", metrics={}), job(id="job_2"), job_2={"val/loss": 0.25})
    step = "This log has loss=…, and no curves: `torchyard run --metric 'loss=(?P<value>.+)' PROGRAM` makes one of it."
    server.on("/v1/jobs/job_1/advice", {"headline": "succeeded", "steps": ["a", step], "metric_pattern": "loss=.+"})
    assert _run(server, "compare", "job_1", "job_2").stderr.splitlines()[0] == f"job_1: {step}"
    server.on("/v1/jobs/job_1/metrics", {"data": [], "max_points": 1500})
    assert _run(server, "metrics", "job_1").stderr.splitlines()[1:] == [step]


def test_a_chosen_metric_is_shown_where_a_job_has_it(server: FakeServer, approved: Approved) -> None:
    serve(server, job(), job(id="job_2"), job_1={"val/loss": 0.25})
    done = _run(server, "compare", "job_1", "job_2", "--key", "val/loss")
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["val/loss", "0.25", "-"]
    assert done.stderr == approved("stderr")


def test_a_chosen_metric_that_no_job_has_fails_and_names_those_there_are(
    server: FakeServer, approved: Approved
) -> None:
    serve(server, job(), job(id="job_2"), job_1={"val/loss": 0.25}, job_2={"lr": 0.1})
    done = _run(server, "compare", "job_1", "job_2", "--key", "typo", "--key", "lr")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("stderr")


def test_json_has_the_jobs_and_what_differs(server: FakeServer) -> None:
    serve(server, job(spec=spec(1, 0.1)), job(id="job_2", spec=spec(1, 0.2)), job_1={"a": "NaN"}, job_2={"a": 1.0})
    found = json.loads(_run(server, "compare", "job_1", "job_2", "--json").stdout)
    assert found == {
        "jobs": [
            {"id": "job_1", "name": "a", "state": "queued", "best": None, "metrics": {"a": "NaN"}},
            {"id": "job_2", "name": "a", "state": "queued", "best": None, "metrics": {"a": 1.0}},
        ],
        "spec": {"config.optimizer.lr": [0.1, 0.2]},
    }


@pytest.mark.parametrize("jobs", [["job_1"], [f"job_{number}" for number in range(51)]])
def test_one_job_or_too_many_are_misuse(server: FakeServer, jobs: list[str]) -> None:
    assert _run(server, "compare", *jobs).returncode == 2
    assert server.requests == []


def test_no_name_controls_the_terminal(server: FakeServer) -> None:
    one, two = job(name=HOSTILE, spec=spec(1, 0.1)), job(id="job_2", name="b", spec=spec(2, 0.1))
    serve(server, one, two, job_1={HOSTILE: 1.0}, job_2={HOSTILE: 2.0})
    done = _run(server, "compare", "job_1", "job_2")
    assert "before" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
