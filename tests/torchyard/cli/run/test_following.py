"""How `torchyard run` ends: with the code of the job's state, and without the job if the upload fails."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.client.answers import JOB, NOW, event, job, line, page, sse
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem, serving
from torchyard.client.packing.bundle import pack


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 3)])
def test_the_exit_code_is_that_of_the_jobs_state(server: FakeServer, folder: Path, state: str, code: int) -> None:
    _serve_bundle(server, folder)
    server.on("/v1/jobs", page([]), Answer(job(), 201))
    server.on(JOB, job(state="running"), job(state="running"), job(state=state, started_at=NOW, finished_at=NOW))
    server.on(f"{JOB}/stream", sse(("log", 1, line(1)), ("state", 2, event(2, state)), ("end", 3, {"state": state})))
    done = _run(server, folder)
    assert (done.returncode, done.stdout) == (code, "rank 0 | text 1\n")
    assert "Nothing was sent" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("after 0 s")


def test_a_terminal_shows_once_what_a_recipe_writes_to_its_log_and_to_its_events(
    server: FakeServer, folder: Path
) -> None:
    _serve_bundle(server, folder)
    server.on("/v1/jobs", page([]), Answer(job(), 201), page([]), Answer(job(), 201))
    server.on(JOB, job(state="running"), job(state="running"), job(state="succeeded", started_at=NOW, finished_at=NOW))
    said = ["1528 training pictures", "epoch 1/2  step 24  train/loss 0.5  val/loss 0.25", "of the program"]
    lines = [{**line(number), "text": f"2026-11-23 23:35:52,577 {text}"} for number, text in enumerate(said, start=1)]
    message = {**event(4, "running"), "type": "message", "data": {"level": "info", "text": "1528 training pictures"}}
    checkpoints = [
        {
            **event(5, "running"),
            "type": "checkpoint",
            "data": {"epoch": epoch, "step": step, "metrics": {"val/loss": 0.25}},
        }
        for epoch, step in ((1, 24), (1, 30), (None, 36))
    ]
    events = [("message", 4, message), *(("checkpoint", 5 + number, item) for number, item in enumerate(checkpoints))]
    items = [("log", number, item) for number, item in enumerate(lines, start=1)]
    server.on(f"{JOB}/stream", sse(*items, *events, ("end", 9, {"state": "succeeded"})))
    code, screen = in_terminal(["run", "train.py"], environment(server.url, TOKEN), columns=150, cwd=folder)
    assert code == 0
    assert screen.count("1528 training pictures") == 1
    assert [screen.count(text) for text in ("epoch 1/2", "epoch 1 ", "step 36")] == [1, 1, 1]
    piped = _run(server, folder)
    assert piped.stdout.count("1528 training pictures") == piped.stderr.count("1528 training pictures") == 1


def test_each_saved_file_of_the_programs_own_is_named(server: FakeServer, folder: Path) -> None:
    _serve_bundle(server, folder)
    server.on("/v1/jobs", page([]), Answer(job(), 201))
    server.on(JOB, job(state="running"), job(state="running"), job(state="succeeded", started_at=NOW, finished_at=NOW))
    told = [
        {"epoch": None, "step": 0, "metrics": {}, "file": "out/best.pt"},
        {"epoch": None, "step": 40, "metrics": {}, "file": "out/checkpoint-40/"},
        {"epoch": None, "step": 50, "metrics": {}},
    ]
    saved = [{**event(1 + number, "running"), "type": "checkpoint", "data": each} for number, each in enumerate(told)]
    items = [("checkpoint", 1 + number, item) for number, item in enumerate(saved)]
    server.on(f"{JOB}/stream", sse(*items, ("end", 9, {"state": "succeeded"})))
    said = [
        line.split(maxsplit=1)[1] for line in _run(server, folder).stderr.splitlines() if "checkpoint saved" in line
    ]
    assert said == [
        "checkpoint saved: out/best.pt",
        "step 40    checkpoint saved: out/checkpoint-40/",
        "step 50    checkpoint saved",
    ]


def test_no_job_is_submitted_if_the_upload_fails(server: FakeServer, folder: Path) -> None:
    path = _serve_bundle(server, folder)
    server.on(path, problem("not_found", 404), problem("quota_exceeded", 403, detail="12 MiB are left"))
    done = _run(server, folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "12 MiB are left" in done.stderr
    assert "/v1/jobs" not in {request.path for request in server.requests}


def test_no_temporary_file_is_left(
    server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    server.on(_serve_bundle(server, folder), problem("forbidden", 403))
    assert _run(server, folder).returncode == 1
    assert [*temporary.iterdir()] == []


def _serve_bundle(server: FakeServer, folder: Path) -> str:
    """Answers that the bundle of the folder is there. Returns its path."""
    with pack(folder) as bundle:
        path = f"/v1/bundles/{bundle.sha256}"
        size = {"size": bundle.size, "received": bundle.size, "files": len(bundle.files)}
        server.on(path, {"sha256": bundle.sha256, **size, "state": "complete", "created_at": NOW})
    return path


def _run(server: FakeServer, folder: Path) -> CompletedProcess[str]:
    return run_in_process(["run", "train.py"], environment(server.url, TOKEN), cwd=folder)
