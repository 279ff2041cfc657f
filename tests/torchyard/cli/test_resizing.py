"""`retry --devices` and `resume --devices`: what becomes of the global batch is said before."""

import json
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client.answers import JOB, NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer

_CHECKPOINT = {
    "id": "ckpt_1",
    "epoch": 3,
    "step": 9,
    "attempt": 1,
    "metrics": {},
    "files": [],
    "aliases": ["best"],
    "size": 0,
    "sha256": "0" * 64,
    "created_at": NOW,
}
_SCRIPT = {"trainer": "script", "config": {"code": "file:///code"}}
_RECIPE = {"trainer": "image-classification", "config": {"data": {"source": "digits"}}}


@pytest.mark.parametrize(
    "case",
    [(_SCRIPT, 2, 1, True), (_SCRIPT, 1, 4, False), (_RECIPE, 2, 1, True), (_RECIPE, 2, 1, False)],
    ids=["script-fewer", "script-more", "recipe-saved", "recipe-anew"],
)
@pytest.mark.parametrize("command", ["retry", "resume"])
def test_the_change_of_the_global_batch_is_said_before(
    server: FakeServer, case: tuple[dict[str, Any], int, int, bool], command: str, approved: Approved
) -> None:
    spec, devices, wanted, saved = case
    old = job(state="paused", spec={**spec, "resources": {"devices_per_node": devices}}, trainer=spec["trainer"])
    server.on(JOB, old)
    server.on(f"{JOB}/checkpoints", page([_CHECKPOINT] if saved else []))
    server.on(f"{JOB}/{command}", Answer(job(), 201 if command == "retry" else 202))
    done = _run(server, command, "job_1", "--devices", str(wanted))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == approved.of_row("said")
    assert json.loads(server.requests[-1].body) == {"devices": wanted}


@pytest.mark.parametrize("command", ["retry", "resume"])
def test_as_many_devices_as_before_change_nothing(server: FakeServer, command: str) -> None:
    server.on(JOB, job(state="paused"))
    server.on(f"{JOB}/{command}", Answer(job(), 201 if command == "retry" else 202))
    done = _run(server, command, "job_1", "--devices", "1")
    assert (done.returncode, "global batch" in done.stderr) == (0, False)
    assert _run(server, command, "job_1").returncode == 0
    assert server.requests[-1].body == b""


def test_devices_go_with_names_alone(server: FakeServer) -> None:
    done = _run(server, "resume", "--state", "paused", "--devices", "1")
    assert (done.returncode, server.requests) == (2, [])
    assert "--devices needs job names" in done.stderr


def _run(server: FakeServer, *words: str) -> Any:
    return run_in_process(words, environment(server.url, "token"))
