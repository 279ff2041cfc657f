"""The commands against a server that answers as documented."""

import csv
import hashlib
import io
import json
import os
from pathlib import Path
import re
import sys
from typing import Any

import pytest

from tests.approved import Approved
from tests.rows import each_row
from tests.torchyard.cli.answered import environment_of, is_clean_error, run
from tests.torchyard.cli.invocation import run_in_process, run_process
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.client.answers import (
    DATA,
    JOB,
    NOW,
    event,
    job,
    line,
    log_page,
    metrics,
    page,
    serve_checkpoint,
    sse,
    stacks,
)
from tests.torchyard.client.fake_server import Answer, FakeServer, problem

CELLS = Path(__file__).parents[2] / "csv_cells.json"
"""Texts, and each as a cell of CSV: the page's exports write the same (web/src/charts/line.test.ts)."""

HOSTILE = "before\x1b]52;c;aGk=\x07\x9d52;c;aGk=\x9c\x1bPx\x1b\\\x1b[2J\x9b2J\u202e\x1b[31mred after"


def test_a_wrong_token_is_exit_code_4(server: FakeServer) -> None:
    server.on("/v1/me", problem("not_authorized", 401))
    done = run(server, "ps")
    assert done.returncode == 4
    assert is_clean_error(done)


def test_no_server_is_exit_code_1_and_says_what_to_do(tmp_path: Path) -> None:
    done = run_process(["ps"], environment_of(None), cwd=tmp_path)
    assert done.returncode == 1
    assert "torchyard up" in done.stderr
    assert is_clean_error(done)


def test_ps_does_not_truncate_lines_in_a_pipe(server: FakeServer) -> None:
    why = "needs 8 GPUs; 1 free on box-a; GPU 3 is held by pid 4121 (21 GiB), not ours " * 3
    reason = {"code": "waits", "message": why, "since": "2026-01-02T03:04:05Z"}
    server.on("/v1/jobs", page([job(status_reason=reason), job(id="job_2", name="long-name", state="succeeded")]))
    heading, first, second = run(server, "ps").stdout.splitlines()
    assert why.strip() in first
    assert heading.index("STATE") == first.index("queued") == second.index("succeeded")
    assert "\x1b" not in first
    assert [item["id"] for item in json.loads(run(server, "ps", "--json").stdout)] == ["job_1", "job_2"]


def test_ps_fits_a_terminal_with_short_ids_and_colours(server: FakeServer) -> None:
    id = f"job_{'3f09c1':0>32}"
    reason = {"code": "waits", "message": "needs 8 devices; the largest worker (box-a) has 2 " * 3, "since": NOW}
    server.on("/v1/jobs", page([job(id=id, name="a" * 30, status_reason=reason)]))
    for columns in (40, 80, 100, 140):
        code, screen = in_terminal(["ps"], environment_of(server), columns=columns)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen.splitlines()]
        assert (code, len(lines), "job_…3f09c1" in screen) == (0, 2, True)
        assert "\x1b[33mqueued\x1b[0m" in screen
        assert len(lines[1]) <= columns
    assert "\x1b" not in in_terminal(["ps"], {**environment_of(server), "NO_COLOR": "1"})[1]


@pytest.mark.parametrize(
    ("options", "complete", "told"),
    [
        ((), True, "20 of 37: --all-rows lists all.\n"),
        (("--state", "failed"), False, "20 of more than 30: --all-rows lists all.\n"),
        (("--json",), True, "20 of 37: --all-rows lists all.\n"),
        (("-n", "20"), True, ""),
        (("--all-rows",), True, ""),
    ],
)
def test_ps_says_where_rows_are_left_out(
    server: FakeServer, options: tuple[str, ...], complete: bool, told: str
) -> None:
    listed = page([job(id=f"job_{number}") for number in range(20)])
    counted = {**page([]), "counts": {"queued": 7, "failed": 30}, "total": 37, "counts_complete": complete}
    server.on("/v1/jobs", listed, counted)
    assert run(server, "ps", *options).stderr == told


def test_plots_begin_with_the_monitored_metric(server: FakeServer) -> None:
    server.on(JOB, job(spec={"trainer": "image-classification", "checkpoint": {"monitor": "val/accuracy"}}))
    server.on(f"{JOB}/metrics", metrics(**{"train/loss": [1, 2], "val/accuracy": [1, 2], "val/loss": [1, 2]}))
    drawn = run(server, "metrics", "job_1", "--plot").stdout
    assert drawn.index("val/accuracy") < drawn.index("train/loss") < drawn.index("val/loss")


def test_download_verifies_the_file_and_prints_its_path(server: FakeServer, tmp_path: Path) -> None:
    server.on(JOB, job())
    serve_checkpoint(server, DATA)
    done = run(server, "download", "job_1", "-o", "mine.pt", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "mine.pt\n")
    assert hashlib.sha256(DATA).hexdigest() in done.stderr
    assert (tmp_path / "mine.pt").read_bytes() == DATA
    done = run(server, "download", "job_1", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["path"] == "ckpt_1.pt"
    serve_checkpoint(server, DATA[1:])
    done = run(server, "download", "job_1", "-o", "other.pt", cwd=tmp_path)
    assert done.returncode == 1
    assert is_clean_error(done)
    assert not (tmp_path / "other.pt").exists()


@pytest.mark.parametrize("left", ["kept", "artifacts", None])
def test_a_download_of_a_job_without_checkpoints_names_the_files_that_it_left(
    server: FakeServer, left: str | None
) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/checkpoints", page([]))
    file = {"id": "art_1", "path": "a.png", "size": 1, "sha256": "0" * 64, "attempt": 1, "created_at": NOW}
    for each in ("kept", "artifacts"):
        server.on(f"{JOB}/{each}", page([file] if each == left else []))
    done = run(server, "download", "job_1")
    assert done.returncode == 1
    assert is_clean_error(done)
    assert "has saved no checkpoint: `torchyard run --checkpoints 'model.pt' PROGRAM`" in done.stderr
    assert ("torchyard cp job_1:" in done.stderr) == (left is not None)


@pytest.mark.parametrize(
    ("option", "ref"), [(["--latest"], "latest"), (["--epoch", "3"], "epoch-3"), (["--best"], "best")]
)
def test_download_requests_the_chosen_checkpoint(server: FakeServer, option: list[str], ref: str) -> None:
    server.on(JOB, job())
    assert run(server, "download", "job_1", *option).returncode == 1
    assert f"{JOB}/checkpoints/{ref}" in [request.path for request in server.requests]


def test_characters_that_the_terminal_lacks_are_replaced(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([{**line(1), "text": "1×8×8"}]))
    done = run_in_process(["logs", "job_1"], environment_of(server), encoding="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1?8?8" in done.stdout


@each_row(
    "command",
    ["ps", "show", "why", "queue", "logs", "logs -f", "retry -f", "checkpoints", "metrics", "stacks", "cancel"],
)
def test_no_text_of_a_job_controls_the_terminal(server: FakeServer, command: str) -> None:
    _serve_hostile(server)
    name, *options = command.split()
    arguments = [name, *options] if name in {"ps", "queue"} else [name, "job_1", *options]
    _, screen = in_terminal(arguments, environment_of(server), columns=400, answer="y\n", shown="[y/N]")
    assert "before" in screen and "red" in screen
    for control in ("\x1b]", "\x1bP", "\x9b", "\x9d", "\x07", "\u202e", "\x1b[2J", "aGk="):
        assert control not in screen, screen


def test_a_pipe_gets_a_log_unchanged(server: FakeServer) -> None:
    _serve_hostile(server)
    assert run(server, "logs", "job_1").stdout == f"rank 0 | {HOSTILE}\n"


def test_a_spreadsheet_runs_no_name_of_a_metric(server: FakeServer) -> None:
    server.on(JOB, job())
    cases: dict[str, str] = json.loads(CELLS.read_text())
    point = {"step": 1, "value": -0.5, "time": NOW, "attempt": 1}
    server.on(f"{JOB}/metrics", {"data": [{"key": name, "points": [point]} for name in cases], "max_points": 1500})
    rows = [*csv.reader(io.StringIO(run(server, "metrics", "job_1", "--csv").stdout, newline=""))][1:]
    assert [row[0] for row in rows] == [*cases.values()]
    assert {row[2] for row in rows} == {"-0.5"}


def test_a_closed_stdout_is_not_an_error(server: FakeServer) -> None:
    server.on("/v1/jobs", page([job()]))
    done = run_process(["ps"], environment_of(server), prepare=_close_stdout)
    assert (done.returncode, done.stderr) == (0, "")


def _close_stdout() -> None:
    """Does what `>&-` does in a shell: Python then has no stdout."""
    os.close(1)
    sys.stdout = sys.__stdout__ = None  # pyright: ignore[reportAttributeAccessIssue]


def test_pause_and_resume_print_the_jobs_state(server: FakeServer, approved: Approved) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/pause", Answer(job(state="running"), 202))
    server.on(f"{JOB}/resume", Answer(job(), 202))
    assert run(server, "pause", "job_1").stdout == approved("output")
    assert run(server, "resume", "job_1").stdout == "job_1  queued\n"


def test_drain_accepts_the_name_of_a_host(server: FakeServer, approved: Approved) -> None:
    worker = _worker([_device(0, job_id="job_1")])
    server.on("/v1/workers", page([worker]))
    server.on("/v1/workers/wrk_1/drain", Answer({**worker, "state": "draining"}, 200))
    done = run(server, "drain", "box-a", "--yes")
    assert done.stdout == approved("output")
    assert "undrain box-a" in done.stderr
    unknown = run(server, "drain", "box-z", "--yes")
    assert (unknown.returncode, "no worker has the id or name 'box-z'" in unknown.stderr) == (1, True)
    assert is_clean_error(unknown)


@pytest.mark.parametrize("noun", ["tokens", "secrets"])
def test_an_empty_list_has_no_heading(server: FakeServer, noun: str) -> None:
    server.on(f"/v1/{noun}", page([]))
    done = run(server, noun, "ls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"No {noun}.\n")


def test_a_worker_that_drains_is_drained_when_it_has_no_job(server: FakeServer) -> None:
    for job_id, state in (("job_1", "draining"), (None, "drained")):
        server.on("/v1/workers", page([{**_worker([_device(0, job_id=job_id)]), "state": "draining"}]))
        assert run(server, "workers", "ls").stdout.splitlines()[1].split()[1] == state


def test_workers_shows_who_holds_a_device_if_there_are_several_owners(server: FakeServer) -> None:
    own = _device(0, job_id="job_1", holder=_holder("ada", name="a"))
    hidden = _device(1, holder=_holder("eve"))
    server.on("/v1/workers", page([_worker([own, _device(2)])]))
    assert "OWNER" not in run(server, "workers", "ls").stdout
    server.on("/v1/workers", page([_worker([own, hidden, _device(2)])]))
    heading, first, second, third = run(server, "workers", "ls").stdout.splitlines()
    column = heading.index("OWNER")
    assert [line[column : column + 4].strip() for line in (first, second, third)] == ["ada", "eve", ""]
    assert "job_1" in first and "a job of eve" in second and "free" in third


def test_a_kept_place_is_shown_below_the_devices(server: FakeServer) -> None:
    worker = _worker([_device(0)])
    server.on("/v1/workers", page([{**worker, "kept": [{"kind": "cpu", "owner": "eve", "job_id": None}]}]))
    server.on("/v1/queue", page([]))
    server.on("/v1/jobs", page([]))
    server.on("/v1/workers/wrk_1/history", {"worker_id": "wrk_1", "resolution_seconds": 5, "devices": []})
    kept = "box-a: CPU slots reserved for a job of eve"
    assert run(server, "workers", "ls").stdout.splitlines()[2:] == [kept]
    assert run(server, "top", "--once").stdout.split("\n\n")[0].splitlines()[-1] == kept


def test_stacks_name_the_node_of_each_rank_where_a_cluster_chose_it(server: FakeServer) -> None:
    held = [
        {"worker": "wrk_1", "index": index, "uuid": f"{node}{index}", "name": "a100", "node": node, "host": f"n{node}"}
        for node in (0, 1)
        for index in (0, 1)
    ]
    server.on(f"{JOB}/stacks", Answer(stacks(*[("File x", None)] * 4), 202))
    for devices, names in ((held, [" on n0", " on n0", " on n1", " on n1"]), ([], [""] * 4)):
        server.on(JOB, job(state="running", attempt=1, devices=devices))
        headings = [line for line in run(server, "stacks", "job_1").stdout.splitlines() if line.startswith("rank")]
        assert headings == [f"rank {rank}{name}" for rank, name in enumerate(names)]


def test_queue_shows_anothers_private_job_by_its_owner(server: FakeServer) -> None:
    entry = {"position": 1, "job_id": None, "name": None, "owner": "eve", "priority": 0, "resources": {}}
    server.on("/v1/queue", page([{**entry, "reason": None, "created_at": NOW}]))
    heading, line = run(server, "queue").stdout.splitlines()
    assert "OWNER" not in heading and "a job of eve" in line


def test_ps_shows_owners_if_there_are_several(server: FakeServer) -> None:
    server.on("/v1/jobs", page([job(), job(id="job_2")]))
    assert "OWNER" not in run(server, "ps", "--all").stdout
    server.on("/v1/jobs", page([job(), job(id="job_2", owner="eve")]))
    assert [line.split()[2] for line in run(server, "ps", "--all").stdout.splitlines()] == ["OWNER", "admin", "eve"]


def test_ps_asks_for_twenty_of_ones_own_jobs_unless_all_are_wanted(server: FakeServer) -> None:
    server.on("/v1/jobs", page([job()]))
    for options in ([], ["--all", "--all-rows"], ["--all", "-n", "5"], ["-n", "30"]):
        run(server, "ps", *options)
    asked = [request.query for request in server.requests if request.path == "/v1/jobs"]
    assert [(query.get("owner"), query.get("limit")) for query in asked] == [
        (["admin"], ["20"]),
        (None, None),
        (None, ["5"]),
        (["admin"], ["30"]),
    ]


def test_cancel_takes_several_jobs(server: FakeServer, approved: Approved) -> None:
    for name in ("job_1", "job_2"):
        server.on(f"/v1/jobs/{name}", job(id=name))
        server.on(f"/v1/jobs/{name}/cancel", Answer(job(id=name, state="cancelled"), 202))
    done = run(server, "cancel", "job_1", "job_2")
    assert done.stdout == approved("output")
    assert len(json.loads(run(server, "cancel", "job_1", "job_2", "--json").stdout)) == 2


def test_a_forced_cancel_says_so(server: FakeServer, approved: Approved) -> None:
    server.on("/v1/jobs/job_1", job(id="job_1"))
    server.on("/v1/jobs/job_1/cancel", Answer(job(id="job_1", state="running"), 202))
    assert run(server, "cancel", "job_1").stdout == approved("output")
    assert run(server, "cancel", "job_1", "--now").stdout == approved("running being killed")
    assert server.requests[-1].query == {"now": ["true"]}


@pytest.mark.parametrize(("most", "noted"), [(100_000, False), (50, True)])
def test_metrics_says_when_the_csv_lacks_points(server: FakeServer, most: int, noted: bool) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/metrics", metrics(loss=[1, 2]) | {"max_points": most})
    done = run(server, "metrics", "job_1", "--csv")
    assert len(done.stdout.splitlines()) == 3
    assert ("at most 50 points of each metric" in done.stderr) == noted


def test_metrics_writes_a_file_for_tensorboard_and_says_how_to_open_it(
    server: FakeServer, tmp_path: Path, approved: Approved
) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/metrics", metrics(loss=[1, 2]))
    run(server, "metrics", "job_1", "--tensorboard", str(tmp_path / "to here"))
    done = run(server, "metrics", "job_1", "--tensorboard", str(tmp_path / "to here"))
    [written] = (tmp_path / "to here").iterdir()
    assert (done.stdout, done.returncode) == (f"{written}\n", 0)
    assert done.stderr == approved("errors", tmp_path=tmp_path)
    assert run(server, "metrics", "job_1", "--csv", "--tensorboard", ".").returncode == 2


@pytest.mark.parametrize("arguments", [["download", "job_1", "--best", "--latest"], ["frobnicate"], ["logs"]])
def test_misuse_is_exit_code_2(server: FakeServer, arguments: list[str]) -> None:
    done = run(server, *arguments)
    assert done.returncode == 2
    assert is_clean_error(done)
    assert server.requests == []


def _serve_hostile(server: FakeServer) -> None:
    """Answers with `HOSTILE` as each text that a job or another user could have written."""
    reason = {"code": "queued", "message": HOSTILE, "since": NOW}
    error = {"code": "user_error", "message": HOSTILE, "traceback": HOSTILE}
    failed = job(state="failed", status_reason=reason, error=error, metrics={HOSTILE: 1.0}, labels={"a": HOSTILE})
    entry = {"position": 1, "job_id": "job_1", "name": "a", "owner": "admin", "priority": 0, "created_at": NOW}
    point = {"step": 1, "value": 1.0, "time": NOW, "attempt": 1}
    checkpoint = {"id": "ckpt_1", "epoch": 1, "step": 1, "attempt": 1, "metrics": {HOSTILE: 1.0}, "aliases": []}
    file = {"size": 1, "sha256": "0" * 64}
    said = {**line(1), "text": HOSTILE}
    message = {"seq": 2, "time": NOW, "type": "message", "attempt": 1, "data": {"level": "warning", "text": HOSTILE}}
    stream = sse(("log", 1, said), ("message", 2, message), ("state", 3, event(3, "failed")), ("end", 4, {}))
    server.on(JOB, failed)
    server.on("/v1/jobs", page([failed]))
    costs = {"job_id": "job_1", "name": HOSTILE, "owner": "a", "kind": "cpu", "devices": 1, "device_seconds": 1}
    costs |= {"steps": None, "resumes_at_step": None, "message": "1 CPU-s is lost"}
    price = {"jobs": [costs, costs], "total": 2, "device_seconds": 2, "message": "2 CPU-s are lost"}
    server.on("/v1/jobs/actions", {"matched": 2, "done": 0, "refused": [], "more": False, "price": price})
    server.on("/v1/queue", page([{**entry, "reason": reason, "resources": {}}]))
    server.on(f"{JOB}/logs", log_page([said]))
    server.on(f"{JOB}/stream", stream)
    server.on(f"{JOB}/checkpoints", page([{**checkpoint, **file, "files": [{**file, "path": "a"}], "created_at": NOW}]))
    server.on(f"{JOB}/metrics", {"data": [{"key": HOSTILE, "points": [point]}], "max_points": 1500})
    server.on(f"{JOB}/retry", Answer(job(), 201))
    server.on(f"{JOB}/stacks", Answer(stacks((HOSTILE, HOSTILE)), 202))
    seen = {"kind": "log", "text": HOSTILE, "line": 1, "rank": 0}
    server.on(f"{JOB}/advice", {"headline": HOSTILE, "cause": f"{HOSTILE}.", "evidence": [seen], "steps": [HOSTILE]})
    server.on(f"{JOB}/cancel", problem("conflict", 409, detail=HOSTILE))


def _worker(devices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "wrk_1", "name": "box-a", "state": "ready", "started_at": NOW, "seen_at": NOW, "devices": devices}


def _device(index: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"cpu-{index}", "name": "CPU slot", "kind": "cpu", **more}


def _holder(owner: str, *, name: str | None = None) -> dict[str, Any]:
    return {"owner": owner, "state": "running", "since": NOW, "name": name}
