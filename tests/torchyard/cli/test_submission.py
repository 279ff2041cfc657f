"""`submit` against a server that answers as documented."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.answered import environment_of, is_clean_error, run
from tests.torchyard.cli.invocation import run_in_process
from tests.torchyard.client.answers import JOB, NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer, problem


def test_submit_prints_the_id_and_sends_the_file(server: FakeServer, tmp_path: Path) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    (tmp_path / "job.yaml").write_text("trainer: image-classification\nconfig: {training: {epochs: 2}}\n")
    arguments = ["submit", "job.yaml", "--name", "mine"]
    done = run_in_process(arguments, environment_of(server), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "job_1\n")
    assert json.loads(server.requests[0].body) == {
        "trainer": "image-classification",
        "config": {"training": {"epochs": 2}},
        "name": "mine",
    }
    done = run(server, "submit", "-", "--json", stdin='{"trainer": "script"}')
    assert json.loads(done.stdout)["id"] == "job_1"
    assert json.loads(server.requests[1].body) == {"trainer": "script"}


def test_a_dry_run_of_submit_prints_what_would_run_and_submits_nothing(server: FakeServer) -> None:
    config = {"code": "file:///code", "module": "pkg.train", "args": ["--name", "a b"]}
    script = {"trainer": "script", "name": "mine", "config": config}
    server.on("/v1/jobs/validate", {"spec": script}, {"spec": {"trainer": "image-classification", "name": "of-recipe"}})
    given = [{**script, "schedule": "0 3 * * *"}]
    done = run(server, "submit", "-", "--dry-run", stdin=json.dumps(given[0]))
    assert (done.returncode, done.stdout) == (0, "mine: -m pkg.train --name 'a b'\n"), done.stderr
    assert "Dry run: nothing was submitted." in done.stderr
    done = run(server, "submit", "-", "--dry-run", stdin='{"trainer": "image-classification"}')
    assert done.stdout == "of-recipe: the recipe image-classification\n"
    done = run(server, "submit", "-", "--dry-run", "--json", stdin='{"trainer": "image-classification"}')
    assert json.loads(done.stdout) == [{"name": "of-recipe", "argv": []}]
    assert {request.path for request in server.requests} == {"/v1/jobs/validate"}


def test_a_dry_run_of_submit_prints_the_arguments_of_each_trial(server: FakeServer) -> None:
    spec = {"trainer": "script", "name": "mine", "config": {"code": "file:///code", "entrypoint": "train.py"}}
    done = run(server, "submit", "-", "--dry-run", "--array", "2", stdin=json.dumps(spec))
    assert done.returncode == 0, done.stderr
    assert [line.split(maxsplit=1)[1].split("   ")[0] for line in done.stdout.splitlines()] == ["train.py"] * 2
    assert server.requests == []


def test_numbers_with_an_exponent_are_numbers_but_where_a_spec_has_texts(server: FakeServer) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    spec = """
trainer: script
name: 1e5
labels: {commit: 12e4567, other: 1e3}
env: {LR: 1e-3}
config:
  args: [--lr, 1e-3]
  numbers: [1e-3, -2E+4, .5e1, 1.5e3, 1.0e-7, 1e2]
  texts: [1e999, e3, 1e, "1e-3", 12e, 2026-11-27]
"""
    assert run(server, "submit", "-", stdin=spec).returncode == 0
    assert json.loads(server.requests[0].body) == {
        "trainer": "script",
        "name": "1e5",
        "labels": {"commit": "12e4567", "other": "1e3"},
        "env": {"LR": "1e-3"},
        "config": {
            "args": ["--lr", "1e-3"],
            "numbers": [0.001, -20000, 5, 1500, 1e-7, 100],
            "texts": ["1e999", "e3", "1e", "1e-3", "12e", "2026-11-27"],
        },
    }
    assert b"100.0" not in server.requests[0].body, "a whole number is one"
    refused = run(server, "submit", "-", stdin="? [name]\n: 1e3\n")
    assert (refused.returncode, "is neither YAML nor JSON" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "just text",
        "[" * 20_000,
        f"trainer: {'x' * 262_144}",
        "#" * (1 << 20 | 1),
    ],
)
def test_submit_explains_why_a_file_is_not_a_spec(server: FakeServer, text: str, approved: Approved) -> None:
    done = run(server, "submit", "-", stdin=text)
    assert done.returncode == 1
    assert done.stderr == approved.of_row("errors")
    assert is_clean_error(done)


def test_submit_sends_the_jobs_of_all_files_at_once(server: FakeServer, tmp_path: Path) -> None:
    data = [{"index": index, "id": f"job_{index}"} for index in range(5)]
    server.on("/v1/jobs/batch", Answer({"data": data}))
    (tmp_path / "two.yaml").write_text("---\ntrainer: a\n---\ntrainer: b\n---\n")
    (tmp_path / "one.json").write_text(json.dumps({"trainer": "c"}, indent=1))
    lines = '{"trainer": "d"}\n\n{"trainer": "e", "name": "own"}\n'
    arguments = ["submit", "two.yaml", "one.json", "-", "--name", "mine", "--idempotency-key", "k", "--atomic"]
    done = run_in_process(arguments, environment_of(server), cwd=tmp_path, stdin=lines)
    assert (done.returncode, done.stdout.split()) == (0, [item["id"] for item in data])
    sent = json.loads(server.requests[0].body)
    assert [spec["trainer"] for spec in sent["jobs"]] == ["a", "b", "c", "d", "e"]
    assert {spec["name"] for spec in sent["jobs"]} == {"mine"}
    assert sent["atomic"] is True
    assert server.requests[0].headers["Idempotency-Key"] == "k"


def test_submit_names_the_place_of_each_job_that_was_not_submitted(
    server: FakeServer, tmp_path: Path, approved: Approved
) -> None:
    wrong = {"code": "invalid_spec", "title": "…", "status": 422, "detail": "the job spec is not valid"}
    errors = [{"field": "priority", "message": "must be at most 100"}]
    away = {"code": "unavailable", "title": "…", "status": 503, "detail": "the database does not answer"}
    data = [
        {"index": 0, "id": "job_0"},
        {"index": 1, "error": {**wrong, "errors": errors}},
        {"index": 2, "id": "job_2"},
        {"index": 3, "error": away},
    ]
    server.on("/v1/jobs/batch", Answer({"data": data}))
    (tmp_path / "two.yaml").write_text("trainer: a\n---\ntrainer: b\n")
    lines = '{"trainer": "c"}\n{"trainer": "d"}\n'
    done = run_in_process(["submit", "two.yaml", "-"], environment_of(server), cwd=tmp_path, stdin=lines)
    assert (done.returncode, done.stdout.split()) == (1, ["job_0", "job_2"])
    assert done.stderr == approved("errors")


@pytest.mark.parametrize(
    "arguments",
    [
        ["two.yaml", "absent.yaml"],
        ["two.yaml", "wrong.yaml"],
        ["two.yaml", "half.json"],
        ["two.yaml", "empty.yaml"],
        ["-", "-"],
        ["two.yaml", "--follow"],
    ],
)
def test_submit_sends_nothing_if_a_file_is_wrong(
    server: FakeServer, tmp_path: Path, arguments: list[str], approved: Approved
) -> None:
    (tmp_path / "two.yaml").write_text("trainer: a\n---\ntrainer: b\n")
    (tmp_path / "wrong.yaml").write_text("trainer: a\n---\n7\n")
    (tmp_path / "half.json").write_text('{"trainer": "a"}\n{"trainer": \n')
    (tmp_path / "empty.yaml").write_text("")
    done = run_in_process(["submit", *arguments], environment_of(server), cwd=tmp_path, stdin="")
    assert done.returncode in {1, 2}
    assert " ".join(done.stderr.split()) == approved.of_row("text")
    assert not [request for request in server.requests if request.method == "POST"]


def test_a_refused_spec_names_each_field(server: FakeServer, approved: Approved) -> None:
    errors = [{"field": "config.training.epochs", "message": "must be above 0"}]
    server.on("/v1/jobs", problem("invalid_spec", 422, errors=errors))
    done = run(server, "submit", "-", stdin="trainer: x")
    assert done.returncode == 1
    assert done.stderr == approved("errors")
    assert is_clean_error(done)


def test_submit_names_the_place_of_each_wrong_job_where_all_are_refused(
    server: FakeServer, tmp_path: Path, approved: Approved
) -> None:
    errors = [
        {"field": "jobs.1.priority", "message": "must be at most 100"},
        {"field": "jobs.1.config.epochs", "message": "must be above 0"},
        {"field": "jobs.3", "message": "ada may have 3 queued jobs"},
    ]
    server.on("/v1/jobs/batch", problem("invalid_spec", 422, detail="nothing is stored", errors=errors))
    (tmp_path / "two.yaml").write_text("trainer: a\n---\ntrainer: b\n")
    lines = '{"trainer": "c"}\n{"trainer": "d"}\n'
    done = run(server, "submit", "two.yaml", "-", "--atomic", cwd=tmp_path, stdin=lines)
    assert (done.returncode, done.stdout) == (1, "")
    assert "\n".join(done.stderr.splitlines()) == approved("stderr")


def test_an_error_of_no_job_is_told_as_of_other_commands(server: FakeServer) -> None:
    errors = [{"field": "Idempotency-Key", "message": "must be 1 to 255 visible ASCII characters"}]
    server.on("/v1/jobs/batch", problem("invalid_request", 422, errors=errors))
    done = run(server, "submit", "-", "--atomic", stdin="trainer: a\n---\ntrainer: b\n")
    assert done.returncode == 1
    assert "Idempotency-Key: must be" in done.stderr
    assert is_clean_error(done)


def test_submit_takes_the_weights_by_the_name_of_their_job(server: FakeServer) -> None:
    source = f"job_{'1' * 32}"
    server.on("/v1/jobs", page([job(id=source, name="digits")]), Answer(job(), 201))
    server.on(f"/v1/jobs/{source}", job(id=source))
    done = run(server, "submit", "-", "--init-from", "digits/epoch-3", stdin='{"trainer": "script"}')
    assert (done.returncode, done.stdout) == (0, "job_1\n")
    assert json.loads(server.requests[-1].body) == {"trainer": "script", "init_from": f"{source}/epoch-3"}


def test_retry_names_the_checkpoint_to_continue_from(server: FakeServer) -> None:
    view = {"id": "ckpt_7", "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "files": [], "aliases": []}
    server.on(JOB, job(state="failed"))
    stored = {**view, "size": 1, "sha256": "0" * 64, "created_at": NOW}
    server.on(f"{JOB}/checkpoints/epoch-3", stored)
    server.on(f"{JOB}/checkpoints", {"data": [stored], "has_more": False, "next": None})
    server.on(f"{JOB}/checkpoints/epoch-1", problem("not_found", 404, detail="it was removed for newer ones"))
    server.on(f"{JOB}/retry", Answer(job(id="job_2", retry_of="job_1"), 201))
    done = run(server, "retry", "job_1", "--from", "epoch-3")
    assert (done.returncode, done.stdout) == (0, "job_2\n")
    assert json.loads(server.requests[-1].body) == {"from": "ckpt_7"}
    done = run(server, "retry", "job_1", "--from", "epoch-1")
    assert done.returncode == 1
    assert "removed" in done.stderr


@pytest.mark.parametrize("code", ["file:///srv/code", f"bundle:sha256:{'0' * 64}"])
@pytest.mark.parametrize("patterns", [{}, {"keep": ["out/*"]}, {"config": {"checkpoints": ["*.pt"]}}])
def test_submit_says_where_patterns_count_for_code_that_is_used_in_place(
    server: FakeServer, code: str, patterns: dict[str, Any]
) -> None:
    spec = {"trainer": "script", **patterns, "config": {"code": code, **patterns.get("config", {})}}
    server.on("/v1/jobs", Answer(job(spec=spec), 201))
    said = run(server, "submit", "-", stdin=json.dumps(spec)).stderr
    words = "file:///srv/code is used in place: patterns count below TORCHYARD_RUN_DIR/artifacts alone\n"
    assert (words in said) == (code.startswith("file:") and bool(patterns))


def test_retry_may_begin_with_the_code_alone(server: FakeServer) -> None:
    server.on(JOB, job(state="failed"))
    server.on(f"{JOB}/retry", Answer(job(id="job_2", retry_of="job_1"), 201))
    assert run(server, "retry", "job_1", "--fresh").returncode == 0
    assert json.loads(server.requests[-1].body) == {"fresh": True}


def test_show_says_where_the_weights_come_from(server: FakeServer) -> None:
    weights = {"ref": "job_2/ckpt_3", "job_id": "job_2", "checkpoint_id": "ckpt_3", "model": None, "step": 9}
    server.on(JOB, job(init_from=weights))
    server.on(f"{JOB}/checkpoints", page([]))
    assert "init from  job_2/ckpt_3 (step 9)" in run(server, "show", "job_1").stdout.splitlines()


def test_jobs_that_wait_for_each_other_are_submitted_all_or_none(server: FakeServer, tmp_path: Path) -> None:
    data = [{"index": index, "id": f"job_{index}"} for index in range(2)]
    server.on("/v1/jobs/batch", Answer({"data": data}))
    (tmp_path / "prep.yaml").write_text("trainer: script\nname: prep\n")
    (tmp_path / "eval.yaml").write_text("trainer: script\nname: eval\nafter:\n  - {job: prep, on: finished}\n")
    done = run_in_process(["submit", "prep.yaml", "eval.yaml"], environment_of(server), cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["job_0", "job_1"])
    sent = json.loads(server.requests[0].body)
    assert sent["atomic"] is True
    assert sent["jobs"][1]["after"] == [{"job": "prep", "on": "finished"}], "`on` is a text, also in YAML 1.1"


def test_why_and_show_say_for_which_jobs_one_waits(server: FakeServer) -> None:
    after = [
        {"job_id": "job_8", "name": "prep", "on": "succeeded", "state": "running"},
        {"job_id": "job_9", "name": None, "on": "failed", "state": None},
    ]
    reason = {"code": "waits_for_jobs", "message": "waits for prep and job_9", "since": NOW}
    server.on(JOB, job(after=after, status_reason=reason))
    server.on("/v1/jobs", page([]))
    server.on("/v1/workers", page([]))
    server.on(f"{JOB}/checkpoints", page([]))
    server.on(f"{JOB}/advice", {"headline": "waits for other jobs", "severity": "info"})
    lines = ["prep   running  needed: succeeded", "job_9  unknown  needed: failed"]
    for command in ("why", "show"):
        done = run(server, command, "job_1")
        assert done.returncode == 0, done.stderr
        assert all(line in done.stdout for line in lines)
