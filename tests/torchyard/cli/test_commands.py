"""The commands against a server that answers as documented."""

from collections.abc import Iterator
import csv
from datetime import datetime
import hashlib
import io
import json
from pathlib import Path
import re
import signal
import subprocess
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.torchyard.cli.invocation import COMMAND, environment, run_in_process, run_process, start_process
from tests.torchyard.cli.reading import read
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.client.answers import (
    DATA,
    JOB,
    NOW,
    event,
    job,
    line,
    live,
    log_page,
    metrics,
    page,
    point,
    serve_checkpoint,
    sse,
)
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, problem, serving
from torchyard.contract.job import JobState

ERROR = {"code": "user_error", "message": "rank 1 raised ValueError", "rank": 1, "exit_code": 1, "traceback": "Trace\n"}

CELLS = Path(__file__).parents[2] / "csv_cells.json"
"""Texts, and each as a cell of CSV: the page's exports write the same (web/src/charts/line.test.ts)."""
HOSTILE = "before\x1b]52;c;aGk=\x07\x9d52;c;aGk=\x9c\x1bPx\x1b\\\x1b[2J\x9b2J\u202e\x1b[31mred after"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
        yield server


APPLY = {
    JobState.QUEUED: {"queue", "cancel"},
    JobState.STARTING: {"logs"},
    JobState.RUNNING: {"logs"},
    JobState.PAUSED: {"resume"},
    JobState.SUCCEEDED: {"download", "logs"},
    JobState.FAILED: {"logs", "retry"},
    JobState.CANCELLED: {"retry"},
}
"""The commands that a job in each state can be used with; `download` needs a checkpoint."""


def test_submit_prints_the_id_and_sends_the_file(server: FakeServer, tmp_path: Path) -> None:
    server.on("/v1/jobs", Answer(job(), 201))
    (tmp_path / "job.yaml").write_text("trainer: image-classification\nconfig: {training: {epochs: 2}}\n")
    arguments = ["submit", "job.yaml", "--name", "mine"]
    done = run_process(arguments, _environment(server), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "job_1\n")
    assert json.loads(server.requests[0].body) == {
        "trainer": "image-classification",
        "config": {"training": {"epochs": 2}},
        "name": "mine",
    }
    done = _run(server, "submit", "-", "--json", stdin='{"trainer": "script"}')
    assert json.loads(done.stdout)["id"] == "job_1"
    assert json.loads(server.requests[1].body) == {"trainer": "script"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "neither YAML nor JSON"),
        ("just text", "not a job spec"),
        ("[" * 5000, "nested too deep"),
        (f"trainer: {'x' * 262_144}", "at most 262144"),
        ("#" * (1 << 20 | 1), "too large to be read as YAML"),
    ],
)
def test_submit_explains_why_a_file_is_not_a_spec(server: FakeServer, text: str, says: str) -> None:
    done = _run(server, "submit", "-", stdin=text)
    assert done.returncode == 1
    assert says in done.stderr
    assert _is_clean_error(done)


def test_submit_sends_the_jobs_of_all_files_at_once(server: FakeServer, tmp_path: Path) -> None:
    data = [{"index": index, "id": f"job_{index}"} for index in range(5)]
    server.on("/v1/jobs/batch", Answer({"data": data}))
    (tmp_path / "two.yaml").write_text("---\ntrainer: a\n---\ntrainer: b\n---\n")
    (tmp_path / "one.json").write_text(json.dumps({"trainer": "c"}, indent=1))
    lines = '{"trainer": "d"}\n\n{"trainer": "e", "name": "own"}\n'
    arguments = ["submit", "two.yaml", "one.json", "-", "--name", "mine", "--idempotency-key", "k", "--atomic"]
    done = run_process(arguments, _environment(server), cwd=tmp_path, stdin=lines)
    assert (done.returncode, done.stdout.split()) == (0, [item["id"] for item in data])
    sent = json.loads(server.requests[0].body)
    assert [spec["trainer"] for spec in sent["jobs"]] == ["a", "b", "c", "d", "e"]
    assert {spec["name"] for spec in sent["jobs"]} == {"mine"}
    assert sent["atomic"] is True
    assert server.requests[0].headers["Idempotency-Key"] == "k"


def test_submit_names_the_place_of_each_job_that_was_not_submitted(server: FakeServer, tmp_path: Path) -> None:
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
    done = run_process(["submit", "two.yaml", "-"], _environment(server), cwd=tmp_path, stdin=lines)
    assert (done.returncode, done.stdout.split()) == (1, ["job_0", "job_2"])
    assert "two.yaml, document 2: priority: must be at most 100" in done.stderr
    assert "standard input, line 2: the database does not answer" in done.stderr
    assert "Submitted 2 of 4 jobs" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["two.yaml", "absent.yaml"], "absent.yaml cannot be read"),
        (["two.yaml", "wrong.yaml"], "wrong.yaml, document 2 is not a job spec"),
        (["two.yaml", "half.json"], "half.json is neither YAML nor JSON"),
        (["two.yaml", "empty.yaml"], "empty.yaml is not a job spec"),
        (["-", "-"], "read once"),
        (["two.yaml", "--follow"], "there are 2 jobs"),
    ],
)
def test_submit_sends_nothing_if_a_file_is_wrong(
    server: FakeServer, tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "two.yaml").write_text("trainer: a\n---\ntrainer: b\n")
    (tmp_path / "wrong.yaml").write_text("trainer: a\n---\n7\n")
    (tmp_path / "half.json").write_text('{"trainer": "a"}\n{"trainer": \n')
    (tmp_path / "empty.yaml").write_text("")
    done = run_process(["submit", *arguments], _environment(server), cwd=tmp_path, stdin="")
    assert done.returncode in {1, 2}
    assert says in " ".join(done.stderr.split())
    assert not [request for request in server.requests if request.method == "POST"]


def test_a_refused_spec_names_each_field(server: FakeServer) -> None:
    errors = [{"field": "config.training.epochs", "message": "must be above 0"}]
    server.on("/v1/jobs", problem("invalid_spec", 422, errors=errors))
    done = _run(server, "submit", "-", stdin="trainer: x")
    assert done.returncode == 1
    assert "config.training.epochs: must be above 0" in done.stderr
    assert _is_clean_error(done)


def test_a_wrong_token_is_exit_code_4(server: FakeServer) -> None:
    server.on("/v1/me", problem("not_authorized", 401))
    done = _run(server, "ps")
    assert done.returncode == 4
    assert _is_clean_error(done)


def test_no_server_is_exit_code_1_and_says_what_to_do(tmp_path: Path) -> None:
    done = run_process(["ps"], _environment(None), cwd=tmp_path)
    assert done.returncode == 1
    assert "torchyard up" in done.stderr
    assert _is_clean_error(done)


def test_ps_does_not_truncate_lines_in_a_pipe(server: FakeServer) -> None:
    why = "needs 8 GPUs; 1 free on box-a; GPU 3 is held by pid 4121 (21 GiB), not ours " * 3
    reason = {"code": "waits", "message": why, "since": "2026-01-02T03:04:05Z"}
    server.on("/v1/jobs", page([job(status_reason=reason), job(id="job_2", name="long-name", state="succeeded")]))
    heading, first, second = _run(server, "ps").stdout.splitlines()
    assert why.strip() in first
    assert heading.index("STATE") == first.index("queued") == second.index("succeeded")
    assert "\x1b" not in first
    assert [item["id"] for item in json.loads(_run(server, "ps", "--json").stdout)] == ["job_1", "job_2"]


def test_ps_fits_its_terminal_and_omits_the_id_in_a_narrow_one(server: FakeServer) -> None:
    reason = {"code": "waits", "message": "needs 8 devices; the largest worker, box-a, has 2 " * 3, "since": NOW}
    server.on("/v1/jobs", page([job(name="a" * 30, status_reason=reason)]))
    for columns, with_id in ((80, False), (120, True)):
        code, screen = in_terminal(["ps"], _environment(server), columns=columns)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen.splitlines()]
        assert (code, len(lines), "job_1" in screen) == (0, 2, with_id)
        assert "\x1b[33mqueued\x1b[0m" in screen
        assert len(lines[1]) == columns and lines[1].endswith("…")


def test_show_prints_the_error_with_its_rank_and_traceback(server: FakeServer) -> None:
    server.on(JOB, job(state="failed", error=ERROR))
    server.on(f"{JOB}/checkpoints", page([]))
    shown = _run(server, "show", "job_1").stdout
    assert "rank 1 raised ValueError (user_error, rank 1, exit code 1)" in shown
    assert "Trace" in shown
    assert json.loads(_run(server, "show", "job_1", "--json").stdout)["error"]["rank"] == 1


def test_show_prints_the_model_card(server: FakeServer) -> None:
    server.on(JOB, job(card={"parameters": 9098, "peak_memory_bytes": 2**31}))
    server.on(f"{JOB}/checkpoints", page([]))
    shown = _run(server, "show", "job_1").stdout
    assert shown.endswith("\n\nMODEL CARD\nparameters   9.1 k\npeak memory  2.0 GiB\n")
    assert json.loads(_run(server, "show", "job_1", "--json").stdout)["card"]["parameters"] == 9098


def test_logs_are_written_to_stdout(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([line(1), line(2)]))
    assert _run(server, "logs", "job_1").stdout == "rank 0 | text 1\nrank 0 | text 2\n"
    assert _run(server, "logs", "job_1", "--rank", "0", "--tail", "2").stdout == "text 1\ntext 2\n"
    assert server.requests[-1].query == {"rank": ["0"], "tail": ["2"]}
    lines = _run(server, "logs", "job_1", "--json").stdout.splitlines()
    assert [json.loads(item)["line"] for item in lines] == [1, 2]


def test_a_line_of_a_log_begins_with_its_time_if_asked(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([line(1)]))
    shown = _run(server, "logs", "job_1", "--timestamps").stdout
    assert shown == "2026-01-02T03:04:05.000Z rank 0 | text 1\n"
    assert _run(server, "logs", "job_1", "-t", "--rank", "0").stdout == "2026-01-02T03:04:05.000Z text 1\n"


def match(number: int, text: str, *spans: tuple[int, int]) -> dict[str, Any]:
    return {**line(number), "text": text, "spans": [*spans]}


def found(*matches: dict[str, Any]) -> dict[str, Any]:
    return {**page([*matches]), "matches": len(matches), "first_line": 1, "last_line": 99, "complete": True}


def test_grep_prints_matching_lines_with_their_numbers(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found(match(7, "CUDA OOM", (5, 8)), match(9, "oom", (0, 3))))
    done = _run(server, "logs", "job_1", "--grep", "oom", "--rank", "0")
    assert (done.returncode, done.stdout) == (0, "7:CUDA OOM\n9:oom\n")
    assert server.requests[-1].query == {"q": ["oom"], "after": ["0"], "limit": ["1000"], "rank": ["0"]}
    _run(server, "logs", "job_1", "--grep", "o+m", "--regex", "--case")
    assert server.requests[-1].query == {
        "q": ["o+m"],
        "after": ["0"],
        "limit": ["1000"],
        "regex": ["true"],
        "case": ["true"],
    }
    lines = _run(server, "logs", "job_1", "--grep", "oom", "--json").stdout.splitlines()
    assert [json.loads(item)["line"] for item in lines] == [7, 9]


def test_grep_prints_the_lines_around_matches_once(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found(match(3, "a"), match(5, "a"), match(20, "a")))
    around = [(1, 2), (4, 5), (3, 4), (6, 7), (18, 19), (21,)]
    server.on(f"{JOB}/logs", *(log_page([line(number) for number in numbers]) for numbers in around))
    done = _run(server, "logs", "job_1", "--rank", "0", "--grep", "a", "-C", "2")
    shown = [item.partition("text")[0] for item in done.stdout.splitlines()]
    assert shown == ["1-", "2-", "3:a", "4-", "5:a", "6-", "7-", "--", "18-", "19-", "20:a", "21-"]
    assert [request.query for request in server.requests[-2:]] == [
        {"before": ["20"], "limit": ["2"], "rank": ["0"]},
        {"after": ["20"], "limit": ["2"], "rank": ["0"]},
    ]


def test_grep_colours_the_match_in_a_terminal(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found(match(7, "ü CUDA OOM!", (7, 10))))
    _, screen = in_terminal(["logs", "job_1", "--rank", "0", "--grep", "oom"], _environment(server))
    assert "CUDA \x1b[1;31mOOM\x1b[0m!" in screen


def test_grep_goes_on_to_the_end_and_shows_in_a_terminal_how_far_it_is(server: FakeServer) -> None:
    server.on(JOB, job())
    first = found(match(7, "oom")) | {"has_more": True, "next": "1200"}
    second = found() | {"has_more": True, "next": "2400", "complete": False}
    answers = (first, second, found(match(3000, "oom")))
    server.on(f"{JOB}/logs/search", *answers, *answers)
    done = _run(server, "logs", "job_1", "--rank", "0", "--grep", "oom")
    assert (done.stdout, done.stderr) == ("7:oom\n3000:oom\n", "")
    _, screen = in_terminal(["logs", "job_1", "--rank", "0", "--grep", "oom"], _environment(server))
    assert re.findall(r"up to line [\d,]+|oom", re.sub(r"\x1b\[[0-9;]*m", "", screen)) == [
        "oom",
        "up to line 1,200",
        "up to line 2,400",
        "oom",
    ]
    assert "up to line 2,400\r\x1b[K" in screen  # it gives way to what is found


def test_grep_without_a_match_says_so(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found())
    done = _run(server, "logs", "job_1", "--grep", "oom")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "No such line.\n")


@pytest.mark.parametrize("options", [["--regex"], ["-C", "1"], ["--grep", "x", "-f"], ["--grep", "x", "--tail", "1"]])
def test_grep_is_refused_where_it_makes_no_sense(server: FakeServer, options: list[str]) -> None:
    assert _run(server, "logs", "job_1", *options).returncode == 2


def test_a_closed_pipe_is_not_an_error(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([line(number) for number in range(1, 20_000)]))
    with start_process(["logs", "job_1"], _environment(server)) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "rank 0 | text 1\n"
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 3)])
def test_follow_exits_with_the_code_of_the_jobs_state(server: FakeServer, state: str, code: int) -> None:
    error = ERROR if state == "failed" else None
    server.on("/v1/jobs", Answer(job(), 201))
    server.on(JOB, job(state="running", attempt=1), job(state=state, attempt=1, error=error))
    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "running")), ("log", 2, line(1))),
        sse(("log", 3, line(2)), ("state", 4, event(4, state)), ("end", 4, {"state": state})),
    )
    done = _run(server, "submit", "-", "--follow", stdin="trainer: image-classification")
    assert done.returncode == code
    assert done.stdout == "rank 0 | text 1\nrank 0 | text 2\n"
    assert "running" in done.stderr
    assert state in done.stderr.splitlines()[-2 if error else -1]


@pytest.mark.parametrize("command", [["logs", "job_1", "-f"], ["retry", "job_1", "--follow"]])
def test_a_line_without_an_end_is_shown_in_its_place_in_a_terminal_alone(
    server: FakeServer, command: list[str]
) -> None:
    ended = job(state="succeeded", started_at=NOW, finished_at=NOW)
    server.on(JOB, job(state="failed"), *(ended for _ in range(4)))
    server.on(f"{JOB}/retry", *(Answer(job(state="running"), 201) for _ in range(2)))
    bars = [("live", None, live(f"{share}%\x1b]52;c;aGk=\x07")) for share in (1, 50)]
    sent = sse(*bars, ("log", 1, {**line(1), "text": "100%"}), ("end", 2, {"state": "succeeded"}))
    server.on(f"{JOB}/stream", sent, sent)
    done = _run(server, *command)
    assert done.stdout == "rank 0 | 100%\n"
    assert "50%" not in done.stderr
    _, screen = in_terminal(command, _environment(server), columns=80)
    first, second, last = (screen.index(f"rank 0 |\x1b[0m {share}%") for share in (1, 50, 100))
    assert first < second < last
    assert "\n" not in screen[first:last]
    assert "\x1b]52" not in screen


@pytest.mark.parametrize("logged", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_traceback_that_the_log_has_shown_is_not_shown_again(server: FakeServer, logged: bool) -> None:
    frames = ['  File "train.py", line 7', "    load()", "ValueError: blue"]
    error = {**ERROR, "traceback": "\n".join(["Traceback (most recent call last):", *frames, ""])}
    texts = ["Traceback (most recent call last):", frames[0], '  File "ours.py", line 1', *frames[1:]]
    ended = job(state="failed", error=error, attempt=1)
    server.on(JOB, *([ended, job(state="running"), ended] * 3))
    server.on(f"{JOB}/retry", *[Answer(job(state="running"), 201)] * 3)
    command = ["retry", "job_1", "--follow"]
    lines = [("log", at, {**line(at), "text": text}) for at, text in enumerate(texts if logged else texts[:-1], 1)]
    server.on(f"{JOB}/stream", *[sse(*lines, ("state", 8, event(8, "failed")), ("end", 8, {"state": "failed"}))] * 3)
    apart = _run(server, *command)
    assert apart.stderr.count("ValueError: blue") == 1  # stdout may go to a file
    code, screen = in_terminal(command, _environment(server))
    together = subprocess.run(
        [*COMMAND, *command],
        env=_environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (code, together.returncode) == (1, 1)
    for shown in (screen, together.stdout):
        assert shown.count("ValueError: blue") == 1
        assert shown.count("train.py") == (1 if logged else 2)
        assert "rank 1 raised ValueError" in shown


def test_ctrl_c_leaves_the_job_running_and_prints_how_to_follow_it_again(server: FakeServer) -> None:
    server.on(JOB, job(state="running"))
    server.on(f"{JOB}/stream", sse(("log", 1, line(1))))
    with start_process(["logs", "job_1", "-f"], _environment(server)) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "rank 0 | text 1\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "torchyard logs job_1 -f" in process.stderr.read()
    assert all(request.method == "GET" for request in server.requests)


def test_follow_says_why_a_job_waits_and_where_in_the_queue(server: FakeServer) -> None:
    since = (NOW, NOW, "2026-01-02T02:00:00Z")
    waits = [
        {"code": "waits", "message": "needs 2 devices", "since": moment, "position": place}
        for moment, place in zip(since, (2, 2, 1), strict=True)
    ]
    ended = job(state="succeeded", started_at=NOW, finished_at=NOW)
    server.on("/v1/jobs", Answer(job(status_reason=waits[0]), 201))
    server.on(JOB, *(job(status_reason=reason) for reason in waits), job(state="running"), ended)
    server.on(f"{JOB}/stream", sse(("state", 1, event(1, "succeeded")), ("end", 2, {"state": "succeeded"})))
    done = _run(server, "submit", "-", "--follow", stdin="trainer: script")
    said = [line for line in done.stderr.splitlines() if "queue" in line]
    assert [line[10:] for line in said] == [
        f"queued     position {place} of the queue: needs 2 devices" for place in (2, 1)
    ]
    local = datetime.fromisoformat(NOW).astimezone().strftime("%H:%M:%S")  # the server's time, whatever this clock says
    assert [text[:8] for text in (*said, done.stderr.splitlines()[-1])] == [local] * 3


def test_follow_shows_the_metrics_of_a_script_that_reports_no_progress(server: FakeServer) -> None:
    ended = job(state="succeeded", started_at=NOW, finished_at=NOW)
    server.on(JOB, job(state="failed"), job(state="running"), ended)
    server.on(f"{JOB}/retry", Answer(job(state="running"), 201))
    points = [("metric", 1, point("val/\x1b[31maccuracy", 7, 0.25)), ("metric", 2, point("train/loss", 7, 0.5))]
    ends = [("log", 3, line(1)), ("state", 4, event(4, "succeeded")), ("end", 5, {"state": "succeeded"})]
    server.on(f"{JOB}/stream", sse(*points, *ends))
    done = _run(server, "retry", "job_1", "--follow")
    assert done.returncode == 0
    assert "          step 7  val/accuracy 0.25\n" in done.stderr
    server.on(JOB, job(state="failed"), job(state="running"), ended)
    _, screen = in_terminal(["retry", "job_1", "--follow"], _environment(server), columns=80)
    assert "step 7  val/accuracy 0.25" in screen


def test_download_verifies_the_file_and_prints_its_path(server: FakeServer, tmp_path: Path) -> None:
    server.on(JOB, job())
    serve_checkpoint(server, DATA)
    done = _run(server, "download", "job_1", "-o", "mine.pt", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "mine.pt\n")
    assert hashlib.sha256(DATA).hexdigest() in done.stderr
    assert (tmp_path / "mine.pt").read_bytes() == DATA
    done = _run(server, "download", "job_1", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["path"] == "ckpt_1.pt"
    serve_checkpoint(server, DATA[1:])
    done = _run(server, "download", "job_1", "-o", "other.pt", cwd=tmp_path)
    assert done.returncode == 1
    assert _is_clean_error(done)
    assert not (tmp_path / "other.pt").exists()


@pytest.mark.parametrize(
    ("option", "ref"), [(["--latest"], "latest"), (["--epoch", "3"], "epoch-3"), (["--best"], "best")]
)
def test_download_requests_the_chosen_checkpoint(server: FakeServer, option: list[str], ref: str) -> None:
    server.on(JOB, job())
    assert _run(server, "download", "job_1", *option).returncode == 1
    assert server.requests[-1].path == f"{JOB}/checkpoints/{ref}"


def test_characters_that_the_terminal_lacks_are_replaced(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([{**line(1), "text": "1×8×8"}]))
    done = run_process(["logs", "job_1"], {**_environment(server), "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "1?8?8" in done.stdout


@pytest.mark.parametrize(
    "command",
    ["ps", "show", "why", "queue", "logs", "logs -f", "retry -f", "checkpoints", "metrics", "stacks", "cancel"],
)
def test_no_text_of_a_job_controls_the_terminal(server: FakeServer, command: str) -> None:
    _serve_hostile(server)
    name, *options = command.split()
    arguments = [name, *options] if name in {"ps", "queue"} else [name, "job_1", *options]
    _, screen = in_terminal(arguments, _environment(server), columns=400)
    assert "before" in screen and "red" in screen
    for control in ("\x1b]", "\x1bP", "\x9b", "\x9d", "\x07", "\u202e", "\x1b[2J", "aGk="):
        assert control not in screen, screen


def test_a_pipe_gets_a_log_unchanged(server: FakeServer) -> None:
    _serve_hostile(server)
    assert _run(server, "logs", "job_1").stdout == f"rank 0 | {HOSTILE}\n"


def test_stacks_prints_each_rank_under_its_number(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/stacks", _stacks(("File train.py, line 7 in load\n", None), (None, "has not answered")))
    done = _run(server, "stacks", "job_1")
    assert done.stdout == "rank 0\nFile train.py, line 7 in load\n\nrank 1: has not answered\n"
    assert json.loads(_run(server, "stacks", "job_1", "--json").stdout)["ranks"][1]["note"] == "has not answered"


def test_stacks_says_that_the_worker_does_not_answer_or_the_job_does_not_run(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/stacks", Answer({**_stacks(), "taken_at": None}, 202))
    done = _run(server, "stacks", "job_1", "--timeout", "0")
    assert (done.returncode, "the worker of job job_1 has not answered within 0 s" in done.stderr) == (1, True)
    assert _is_clean_error(done)
    server.on(f"{JOB}/stacks", problem("conflict", 409, detail="job job_1 is queued"))
    done = _run(server, "stacks", "job_1")
    assert (done.returncode, "job job_1 is queued" in done.stderr) == (1, True)
    assert _is_clean_error(done)


def test_why_prints_the_advice_and_nothing_twice(server: FakeServer) -> None:
    reason = {"code": "user_error", "message": "it broke", "since": NOW}
    server.on(JOB, job(state="failed", status_reason=reason))
    seen = [{"kind": "log", "text": "a\nline", "line": 7, "rank": 1}, {"kind": "rank", "text": "rank 1 ended"}]
    advice = {"headline": "failed on rank 1", "cause": "it broke", "evidence": seen, "steps": ["Correct it."]}
    server.on(f"{JOB}/advice", advice)
    server.on(f"{JOB}/checkpoints", page([]))
    assert _run(server, "why", "job_1").stdout.splitlines()[:5] == [
        "a failed: it broke",
        "advice     failed on rank 1",
        "evidence   a line (line 7 of the log, rank 1)",
        "evidence   rank 1 ended",
        "next       Correct it.",
    ]
    assert json.loads(_run(server, "why", "job_1", "--json").stdout)["advice"]["cause"] == "it broke"


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("state", [*JobState])
def test_why_names_commands_that_there_are_and_that_apply(
    server: FakeServer, state: JobState, has_checkpoint: bool
) -> None:
    server.on(JOB, job(state=state))
    server.on("/v1/workers", page([]))
    file = {"path": "a", "size": 1, "sha256": "0" * 64}
    checkpoint = {"id": "ckpt_1", "epoch": 1, "step": 1, "attempt": 1, "metrics": {}, "aliases": ["latest"]}
    listed = [{**checkpoint, "files": [file], "size": 1, "sha256": "0" * 64, "created_at": NOW}]
    server.on(f"{JOB}/checkpoints", page(listed if has_checkpoint else []))
    server.on(f"{JOB}/advice", {"headline": "it goes on"})
    shown = _run(server, "why", "job_1").stdout
    lines = [found.split() for found in re.findall(r"torchyard (\w.*?)  ", shown)]
    for words in lines:
        read(words)
    named = {words[0] for words in lines}
    assert named, shown
    assert named <= APPLY[state] - (set() if has_checkpoint else {"download"}), shown
    assert has_checkpoint or "from its newest checkpoint" not in shown


def test_a_traceback_in_the_message_is_shown_once_and_after_the_answer(server: FakeServer) -> None:
    inner = "Original Traceback (most recent call last):\n  File train.py, line 7\nKeyError: 'mask'"
    message = f"KeyError: Caught KeyError in DataLoader worker process 0.\n{inner}"
    reason = {"code": "user_error", "message": message, "since": NOW}
    error = {"code": "user_error", "message": message, "traceback": f"Traceback (most recent call last):\n{inner}"}
    server.on(JOB, job(state="failed", status_reason=reason, error=error))
    server.on("/v1/jobs", page([job(state="failed", status_reason=reason, error=error)]))
    server.on(f"{JOB}/checkpoints", page([]))
    server.on(f"{JOB}/advice", {"headline": "failed: KeyError: 'mask'", "steps": ["Correct train.py."]})
    shown = _run(server, "why", "job_1").stdout
    assert shown.startswith("a failed: KeyError: 'mask'\n")
    assert shown.count("Original Traceback") == 1
    assert shown.index("Correct train.py.") < shown.index("Traceback")
    assert _run(server, "show", "job_1").stdout.count("Original Traceback") == 1
    assert _run(server, "ps").stdout.splitlines()[1].endswith("KeyError: 'mask'")


def test_a_spreadsheet_runs_no_name_of_a_metric(server: FakeServer) -> None:
    server.on(JOB, job())
    cases: dict[str, str] = json.loads(CELLS.read_text())
    point = {"step": 1, "value": -0.5, "time": NOW, "attempt": 1}
    server.on(f"{JOB}/metrics", {"data": [{"key": name, "points": [point]} for name in cases], "max_points": 1500})
    rows = [*csv.reader(io.StringIO(_run(server, "metrics", "job_1", "--csv").stdout, newline=""))][1:]
    assert [row[0] for row in rows] == [*cases.values()]
    assert {row[2] for row in rows} == {"-0.5"}


def test_a_closed_stdout_is_not_an_error(server: FakeServer) -> None:
    server.on("/v1/jobs", page([job()]))
    command = f"exec {' '.join(COMMAND)} ps >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False, env=_environment(server))
    assert (done.returncode, done.stderr) == (0, b"")


def test_pause_and_resume_print_the_jobs_state(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/pause", Answer(job(state="running"), 202))
    server.on(f"{JOB}/resume", Answer(job(), 202))
    assert _run(server, "pause", "job_1").stdout == "job_1  running, is about to pause\n"
    assert _run(server, "resume", "job_1").stdout == "job_1  queued\n"


def test_drain_accepts_the_name_of_a_host(server: FakeServer) -> None:
    worker = _worker([_device(0, job_id="job_1")])
    server.on("/v1/workers", page([worker]))
    server.on("/v1/workers/wrk_1/drain", Answer({**worker, "state": "draining"}, 200))
    done = _run(server, "drain", "box-a")
    assert done.stdout == "box-a  draining; jobs that return to the queue: 1\n"
    unknown = _run(server, "drain", "box-z")
    assert (unknown.returncode, "no worker with the id or name 'box-z'" in unknown.stderr) == (1, True)
    assert _is_clean_error(unknown)


def test_workers_shows_who_holds_a_device_if_there_are_several_owners(server: FakeServer) -> None:
    own = _device(0, job_id="job_1", holder=_holder("ada", name="a"))
    hidden = _device(1, holder=_holder("eve"))
    server.on("/v1/workers", page([_worker([own, _device(2)])]))
    assert "OWNER" not in _run(server, "workers").stdout
    server.on("/v1/workers", page([_worker([own, hidden, _device(2)])]))
    heading, first, second, third = _run(server, "workers").stdout.splitlines()
    column = heading.index("OWNER")
    assert [line[column : column + 4].strip() for line in (first, second, third)] == ["ada", "eve", ""]
    assert "job_1" in first and "eve's private job" in second and "free" in third


def test_a_kept_place_is_shown_below_the_devices(server: FakeServer) -> None:
    worker = _worker([_device(0)])
    server.on("/v1/workers", page([{**worker, "kept": [{"kind": "cpu", "owner": "eve", "job_id": None}]}]))
    server.on("/v1/queue", page([]))
    server.on("/v1/jobs", page([]))
    server.on("/v1/workers/wrk_1/history", {"worker_id": "wrk_1", "resolution_seconds": 5, "devices": []})
    kept = "box-a: its CPU slots are kept for a job of eve, until that can start"
    assert _run(server, "workers").stdout.splitlines()[2:] == [kept]
    assert _run(server, "top", "--once").stdout.split("\n\n")[0].splitlines()[-1] == kept


def test_queue_shows_anothers_private_job_by_its_owner(server: FakeServer) -> None:
    entry = {"position": 1, "job_id": None, "name": None, "owner": "eve", "priority": 0, "resources": {}}
    server.on("/v1/queue", page([{**entry, "reason": None, "created_at": NOW}]))
    heading, line = _run(server, "queue").stdout.splitlines()
    assert "OWNER" not in heading and "eve's private job" in line


def test_ps_shows_owners_if_there_are_several(server: FakeServer) -> None:
    server.on("/v1/jobs", page([job(), job(id="job_2")]))
    assert "OWNER" not in _run(server, "ps", "--all").stdout
    server.on("/v1/jobs", page([job(), job(id="job_2", owner="eve")]))
    assert [line.split()[2] for line in _run(server, "ps", "--all").stdout.splitlines()] == ["OWNER", "admin", "eve"]


def test_ps_asks_for_twenty_of_ones_own_jobs_unless_all_are_wanted(server: FakeServer) -> None:
    server.on("/v1/jobs", page([job()]))
    for options in ([], ["--all"], ["--all", "-n", "5"], ["-n", "30"]):
        _run(server, "ps", *options)
    asked = [request.query for request in server.requests if request.path == "/v1/jobs"]
    assert [(query.get("owner"), query.get("limit")) for query in asked] == [
        (["admin"], ["20"]),
        (None, None),
        (None, ["5"]),
        (["admin"], ["30"]),
    ]


def test_cancel_takes_several_jobs(server: FakeServer) -> None:
    for name in ("job_1", "job_2"):
        server.on(f"/v1/jobs/{name}", job(id=name))
        server.on(f"/v1/jobs/{name}/cancel", Answer(job(id=name, state="cancelled"), 202))
    done = _run(server, "cancel", "job_1", "job_2")
    assert done.stdout == "job_1  cancelled\njob_2  cancelled\n"
    assert len(json.loads(_run(server, "cancel", "job_1", "job_2", "--json").stdout)) == 2


def test_a_forced_cancel_says_so(server: FakeServer) -> None:
    server.on("/v1/jobs/job_1", job(id="job_1"))
    server.on("/v1/jobs/job_1/cancel", Answer(job(id="job_1", state="running"), 202))
    assert _run(server, "cancel", "job_1").stdout == "job_1  running, is being cancelled\n"
    assert _run(server, "cancel", "job_1", "--now").stdout == "job_1  running, is being killed\n"
    assert server.requests[-1].query == {"now": ["true"]}


@pytest.mark.parametrize(("most", "noted"), [(100_000, False), (50, True)])
def test_metrics_says_when_the_csv_lacks_points(server: FakeServer, most: int, noted: bool) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/metrics", metrics(loss=[1, 2]) | {"max_points": most})
    done = _run(server, "metrics", "job_1", "--csv")
    assert len(done.stdout.splitlines()) == 3
    assert ("has at most 50 points here" in done.stderr) == noted


def test_metrics_writes_a_file_for_tensorboard_and_says_how_to_open_it(server: FakeServer, tmp_path: Path) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/metrics", metrics(loss=[1, 2]))
    _run(server, "metrics", "job_1", "--tensorboard", str(tmp_path / "to here"))
    done = _run(server, "metrics", "job_1", "--tensorboard", str(tmp_path / "to here"))
    [written] = (tmp_path / "to here").iterdir()
    assert (done.stdout, done.returncode) == (f"{written}\n", 0)
    assert f"tensorboard --logdir '{tmp_path}/to here'" in done.stderr
    assert _run(server, "metrics", "job_1", "--csv", "--tensorboard", ".").returncode == 2


@pytest.mark.parametrize("arguments", [["download", "job_1", "--best", "--latest"], ["frobnicate"], ["logs"]])
def test_misuse_is_exit_code_2(server: FakeServer, arguments: list[str]) -> None:
    done = _run(server, *arguments)
    assert done.returncode == 2
    assert _is_clean_error(done)
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
    server.on("/v1/queue", page([{**entry, "reason": reason, "resources": {}}]))
    server.on(f"{JOB}/logs", log_page([said]))
    server.on(f"{JOB}/stream", stream)
    server.on(f"{JOB}/checkpoints", page([{**checkpoint, **file, "files": [{**file, "path": "a"}], "created_at": NOW}]))
    server.on(f"{JOB}/metrics", {"data": [{"key": HOSTILE, "points": [point]}], "max_points": 1500})
    server.on(f"{JOB}/retry", Answer(job(), 201))
    server.on(f"{JOB}/stacks", _stacks((HOSTILE, HOSTILE)))
    seen = {"kind": "log", "text": HOSTILE, "line": 1, "rank": 0}
    server.on(f"{JOB}/advice", {"headline": HOSTILE, "cause": f"{HOSTILE}.", "evidence": [seen], "steps": [HOSTILE]})
    server.on(f"{JOB}/cancel", problem("conflict", 409, detail=HOSTILE))


def _stacks(*ranks: tuple[str | None, str | None]) -> dict[str, Any]:
    views = [{"rank": rank, "text": text, "note": note} for rank, (text, note) in enumerate(ranks)]
    return {"attempt": 1, "requested_at": NOW, "taken_at": NOW, "ranks": views}


def _worker(devices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "wrk_1", "name": "box-a", "state": "ready", "started_at": NOW, "seen_at": NOW, "devices": devices}


def _device(index: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "uuid": f"cpu-{index}", "name": "CPU slot", "kind": "cpu", **more}


def _holder(owner: str, *, name: str | None = None) -> dict[str, Any]:
    return {"owner": owner, "state": "running", "since": NOW, "name": name}


def _run(server: FakeServer | None, *arguments: str, stdin: str = "", cwd: Path | None = None) -> CompletedProcess[str]:
    return run_in_process(arguments, _environment(server), stdin=stdin, cwd=cwd)


def _environment(server: FakeServer | None) -> dict[str, str]:
    return environment(None if server is None else server.url, TOKEN)


def _is_clean_error(done: CompletedProcess[str]) -> bool:
    return done.stdout == "" and "rror: " in done.stderr and "Traceback" not in done.stderr
