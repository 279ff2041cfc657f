"""The commands of schedules against a server that answers as documented."""

import json
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.torchyard.cli.answered import environment_of, is_clean_error, run
from tests.torchyard.cli.invocation import run_in_process
from tests.torchyard.client.answers import NOW, page
from tests.torchyard.client.fake_server import Answer, FakeServer
from tests.torchyard.client.test_schedules import ID, OF_ONE, PATH, schedule, sent

REFUSED = {"code": "quota_exceeded", "message": "ada may have 1 queued job", "at": NOW}


@pytest.fixture(autouse=True)
def answers(server: FakeServer) -> None:
    server.on(PATH, page([schedule()]))
    server.on(OF_ONE, schedule(last_error=REFUSED))


def test_submit_sends_a_spec_with_a_schedule_there(server: FakeServer, tmp_path: Path) -> None:
    server.on(PATH, Answer(schedule(), 201))
    text = "trainer: image-classification\nschedule: {cron: 0 3 * * *, until: 2030-01-01T00:00:00Z}\n"
    (tmp_path / "nightly.yaml").write_text(text)
    done = run_in_process(["submit", "nightly.yaml", "--idempotency-key", "once"], environment_of(server), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{ID}\n"), done.stderr
    assert sent(server)["schedule"] == {"cron": "0 3 * * *", "until": "2030-01-01T00:00:00Z"}
    assert server.requests[-1].headers["Idempotency-Key"] == "once"
    assert f"schedules show {ID}" in done.stderr


def test_a_spec_with_a_schedule_is_submitted_alone(server: FakeServer, tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "two.yaml").write_text("trainer: script\n---\ntrainer: script\nschedule: 0 3 * * *\n")
    done = run_in_process(["submit", "two.yaml"], environment_of(server), cwd=tmp_path)
    assert done.returncode == 2
    assert " ".join(done.stderr.split()) == approved("text")
    assert server.requests == []


def test_a_program_has_times_in_five_fields_and_one_job(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    for words in (["--schedule", "nightly"], ["--schedule", "0 2 * * *", "--array", "2"], ["--schedule", "@daily"]):
        refused = run_in_process(["run", *words, "train.py"], environment_of(server), cwd=tmp_path)
        assert (refused.returncode, "--schedule" in refused.stderr, server.requests) == (2, True, [])
    assert "`run --schedule`" in run(server, "schedules", "add").stderr


def test_schedules_are_listed_and_shown(server: FakeServer) -> None:
    listed = run(server, "schedules", "ls").stdout
    assert ID in listed and "0 3 * * *" in listed and "active" in listed
    assert json.loads(run(server, "schedules", "ls", "--json").stdout)[0]["id"] == ID
    shown = run(server, "schedules", "show", "nightly").stdout
    for part in ("0 3 * * *  UTC", "overlap    skip", "skipped    2", "job_1", "ada may have 1 queued job"):
        assert part in shown
    server.on(PATH, page([]))
    assert "No schedules." in run(server, "schedules", "ls").stderr


def test_schedules_are_paused_resumed_and_removed(server: FakeServer) -> None:
    server.on(OF_ONE, schedule(state="paused", next_at=None))
    assert run(server, "schedules", "pause", "nightly", ID).stdout == f"{ID}  paused  next: never\n"
    assert sent(server) == {"paused": True}
    assert run(server, "schedules", "resume", "nightly").returncode == 0
    assert sent(server) == {"paused": False}
    refused = run(server, "schedules", "rm", "nightly")
    assert refused.returncode == 2 and "--yes" in refused.stderr
    server.on(OF_ONE, schedule(), Answer(b"", 204))
    assert run(server, "schedules", "rm", "nightly", "-y").stdout == f"{ID}  deleted\n"
    assert server.requests[-1].method == "DELETE"
    assert is_clean_error(run(server, "schedules", "pause", "absent"))
