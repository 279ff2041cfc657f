"""What commands show of a job: its state, its log, where it hangs, and what to do."""

from datetime import UTC, datetime, timedelta
import json
from pathlib import Path
import re
import signal
from typing import Any

import pytest

from tests.approved import Approved
from tests.forked import ForkedProgram
from tests.torchyard.cli.answered import environment_of, is_clean_error, run
from tests.torchyard.cli.invocation import start_process
from tests.torchyard.cli.reading import read
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.client.answers import JOB, NOW, event, job, line, live, log_page, page, point, sse, stacks
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from torchyard.contract.states import JobState

ERROR = {"code": "user_error", "message": "rank 1 raised ValueError", "rank": 1, "exit_code": 1, "traceback": "Trace\n"}

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


def test_ps_watch_reads_no_more_jobs_than_the_terminal_has_lines(server: FakeServer) -> None:
    many = [job(id=f"job_{number}", name="seen") for number in range(100)]
    server.on("/v1/jobs", {"data": many, "has_more": True, "next": "next"})
    code, _ = in_terminal(["ps", "--all", "--all-rows", "--watch"], environment_of(server), answer="q", shown="seen")
    asked = [request.query for request in server.requests if request.path == "/v1/jobs"]
    assert code == 0
    assert asked and all(query["limit"] == ["24"] and "after" not in query for query in asked)


def test_top_asks_for_the_jobs_that_ended_last(server: FakeServer) -> None:
    for path in ("/v1/workers", "/v1/queue"):
        server.on(path, page([]))
    begun, ended = datetime.fromisoformat(NOW) - timedelta(days=3), datetime.now(UTC).isoformat()
    server.on("/v1/jobs", page([job(name="long", state="succeeded", created_at=begun.isoformat(), finished_at=ended)]))
    assert "long" in run(server, "top", "--once").stdout
    [asked] = [request.query for request in server.requests if request.path == "/v1/jobs"]
    assert asked["sort"] == ["finished"]


def test_a_job_that_was_not_needed_is_shown_as_skipped(server: FakeServer) -> None:
    reason = {"code": "dependency_failed", "message": "not needed: prep succeeded", "since": NOW}
    skipped = job(state="failed", status_reason=reason, finished_at=datetime.now(UTC).isoformat())
    for path, answer in ((JOB, skipped), ("/v1/jobs", page([skipped])), (f"{JOB}/checkpoints", page([]))):
        server.on(path, answer)
    for path in ("/v1/workers", "/v1/queue"):
        server.on(path, page([]))
    for command in (["ps"], ["show", "job_1"], ["top", "--once"], ["wait", "job_1"]):
        shown = run(server, *command).stdout
        assert ("skipped" in shown, "failed" in shown) == (True, False), (command, shown)
    [listed] = json.loads(run(server, "ps", "--json").stdout)
    assert (listed["state"], listed["status_reason"]["code"]) == ("failed", "dependency_failed")


def test_show_prints_the_error_with_its_rank_and_traceback(server: FakeServer) -> None:
    server.on(JOB, job(state="failed", error=ERROR))
    server.on(f"{JOB}/checkpoints", page([]))
    shown = run(server, "show", "job_1").stdout
    assert "rank 1 raised ValueError (user_error, rank 1, exit code 1)" in shown
    assert "Trace" in shown
    assert json.loads(run(server, "show", "job_1", "--json").stdout)["error"]["rank"] == 1


def test_show_prints_the_model_card(server: FakeServer) -> None:
    server.on(JOB, job(card={"parameters": 9098, "peak_memory_bytes": 2**31}))
    server.on(f"{JOB}/checkpoints", page([]))
    shown = run(server, "show", "job_1").stdout
    assert shown.endswith("\n\nMODEL CARD\nparameters   9.1 k\npeak memory  2.0 GiB\n")
    assert json.loads(run(server, "show", "job_1", "--json").stdout)["card"]["parameters"] == 9098


def test_logs_are_written_to_stdout(server: FakeServer, approved: Approved) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([line(1), line(2)]))
    assert run(server, "logs", "job_1").stdout == approved("output")
    assert run(server, "logs", "job_1", "--rank", "0", "--tail", "2").stdout == "text 1\ntext 2\n"
    assert server.requests[-1].query == {"rank": ["0"], "tail": ["2"]}
    lines = run(server, "logs", "job_1", "--json").stdout.splitlines()
    assert [json.loads(item)["line"] for item in lines] == [1, 2]


def test_a_line_of_a_log_begins_with_its_time_if_asked(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([line(1)]))
    shown = run(server, "logs", "job_1", "--timestamps").stdout
    assert shown == "2026-01-02T03:04:05.000Z rank 0 | text 1\n"
    assert run(server, "logs", "job_1", "-t", "--rank", "0").stdout == "2026-01-02T03:04:05.000Z text 1\n"


def test_grep_prints_matching_lines_with_their_numbers(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found(match(7, "CUDA OOM", (5, 8)), match(9, "oom", (0, 3))))
    done = run(server, "logs", "job_1", "--grep", "oom", "--rank", "0")
    assert (done.returncode, done.stdout) == (0, "7:CUDA OOM\n9:oom\n")
    assert server.requests[-1].query == {"q": ["oom"], "after": ["0"], "limit": ["1000"], "rank": ["0"]}
    run(server, "logs", "job_1", "--grep", "o+m", "--regex", "--case")
    assert server.requests[-1].query == {
        "q": ["o+m"],
        "after": ["0"],
        "limit": ["1000"],
        "regex": ["true"],
        "case": ["true"],
    }
    lines = run(server, "logs", "job_1", "--grep", "oom", "--json").stdout.splitlines()
    assert [json.loads(item)["line"] for item in lines] == [7, 9]


def test_grep_prints_the_lines_around_matches_once(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found(match(3, "a"), match(5, "a"), match(20, "a")))
    around = [(1, 2), (4, 5), (3, 4), (6, 7), (18, 19), (21,)]
    server.on(f"{JOB}/logs", *(log_page([line(number) for number in numbers]) for numbers in around))
    done = run(server, "logs", "job_1", "--rank", "0", "--grep", "a", "-C", "2")
    shown = [item.partition("text")[0] for item in done.stdout.splitlines()]
    assert shown == ["1-", "2-", "3:a", "4-", "5:a", "6-", "7-", "--", "18-", "19-", "20:a", "21-"]
    assert [request.query for request in server.requests[-2:]] == [
        {"before": ["20"], "limit": ["2"], "rank": ["0"]},
        {"after": ["20"], "limit": ["2"], "rank": ["0"]},
    ]


def test_grep_colours_the_match_in_a_terminal(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs/search", found(match(7, "ü CUDA OOM!", (7, 10))))
    _, screen = in_terminal(["logs", "job_1", "--rank", "0", "--grep", "oom"], environment_of(server))
    assert "CUDA \x1b[1;31mOOM\x1b[0m!" in screen


def test_grep_goes_on_to_the_end_and_shows_in_a_terminal_how_far_it_is(server: FakeServer) -> None:
    server.on(JOB, job())
    first = found(match(7, "oom")) | {"has_more": True, "next": "1200"}
    second = found() | {"has_more": True, "next": "2400", "complete": False}
    answers = (first, second, found(match(3000, "oom")))
    server.on(f"{JOB}/logs/search", *answers, *answers)
    done = run(server, "logs", "job_1", "--rank", "0", "--grep", "oom")
    assert (done.stdout, done.stderr) == ("7:oom\n3000:oom\n", "")
    _, screen = in_terminal(["logs", "job_1", "--rank", "0", "--grep", "oom"], environment_of(server))
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
    done = run(server, "logs", "job_1", "--grep", "oom")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "No line matches.\n")


@pytest.mark.parametrize("options", [["--regex"], ["-C", "1"], ["--grep", "x", "-f"], ["--grep", "x", "--tail", "1"]])
def test_grep_is_refused_where_it_makes_no_sense(server: FakeServer, options: list[str]) -> None:
    assert run(server, "logs", "job_1", *options).returncode == 2


def test_a_closed_pipe_is_not_an_error(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/logs", log_page([line(number) for number in range(1, 20_000)]))
    with start_process(["logs", "job_1"], environment_of(server)) as process:
        assert process.stdout.readline() == "rank 0 | text 1\n"
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 3)])
def test_follow_exits_with_the_code_of_the_jobs_state(
    server: FakeServer, state: str, code: int, approved: Approved
) -> None:
    error = ERROR if state == "failed" else None
    server.on("/v1/jobs", Answer(job(), 201))
    server.on(JOB, job(state="running", attempt=1), job(state=state, attempt=1, error=error))
    server.on(
        f"{JOB}/stream",
        sse(("state", 1, event(1, "running")), ("log", 2, line(1))),
        sse(("log", 3, line(2)), ("state", 4, event(4, state)), ("end", 4, {"state": state})),
    )
    done = run(server, "submit", "-", "--follow", stdin="trainer: image-classification")
    assert done.returncode == code
    assert done.stdout == approved("output")
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
    done = run(server, *command)
    assert done.stdout == "rank 0 | 100%\n"
    assert "50%" not in done.stderr
    _, screen = in_terminal(command, environment_of(server), columns=80)
    first, second, last = (screen.index(f"rank 0 |\x1b[0m {share}%") for share in (1, 50, 100))
    assert first < second < last
    assert "\n" not in screen[first:last]
    assert "\x1b]52" not in screen


def test_logs_that_are_followed_have_the_messages_of_the_service_between_their_lines(server: FakeServer) -> None:
    texts = ["continues in the folder of attempt 1", "not kept: /tmp/logs/ (2 files, 1.0 MiB)"]
    times = [NOW, "2026-01-02T03:09:00Z"]
    told = [
        (
            "message",
            seq,
            {**event(seq, "running"), "type": "message", "time": time, "data": {"level": "info", "text": text}},
        )
        for seq, (text, time) in enumerate(zip(texts, times, strict=True), 2)
    ]
    sent = sse(told[0], ("log", 3, line(1)), ("log", 4, line(2)), told[1], ("end", 5, {"state": "succeeded"}))
    ended = job(state="succeeded", started_at=NOW, finished_at=NOW)
    server.on(JOB, *[ended] * 6)
    server.on(f"{JOB}/logs", log_page([line(1)]), log_page([line(1)]))
    server.on(f"{JOB}/stream", *[sent] * 3)
    whole = run(server, "logs", "job_1", "-f")
    assert whole.stdout == "rank 0 | text 1\nrank 0 | text 2\n"
    assert [text[10:] for text in whole.stderr.splitlines()] == texts
    assert server.requests[-2].query == {"only": ["log", "message", "state"]}
    rest = run(server, "logs", "job_1", "-f", "--tail", "1")
    assert rest.stdout == "rank 0 | text 1\nrank 0 | text 2\n"
    assert [text[10:] for text in rest.stderr.splitlines()] == texts[1:], "what came before is not wanted"
    assert run(server, "logs", "job_1", "-f", "--json").returncode == 0
    assert "message" not in str(server.requests[-2].query)


def test_logs_that_are_followed_say_why_an_attempt_ended(server: FakeServer) -> None:
    killed = "attempt 1 ended: rank 0 was killed by SIGKILL"
    moves = [(None, "queued", "waits"), ("queued", "starting", "starts"), ("running", "queued", killed)]
    told = [
        ("state", seq, {**event(seq, to), "data": {"from": before, "to": to, "reason": {"code": "x", "message": why}}})
        for seq, (before, to, why) in enumerate([*moves, ("running", "paused", "paused by ada")], 2)
    ]
    server.on(JOB, job(state="running"), job(state="failed", started_at=NOW, finished_at=NOW, error=ERROR, attempt=2))
    server.on(f"{JOB}/stream", sse(*told, ("log", 7, line(1)), ("end", 8, {"state": "failed"})))
    done = run(server, "logs", "job_1", "-f")
    assert (done.returncode, done.stdout) == (1, "rank 0 | text 1\n")
    shown = [text[10:] for text in done.stderr.splitlines()[:2]]
    assert shown == [f"queued     {killed}", "paused     paused by ada"]
    assert done.stderr.splitlines()[2][10:].startswith("failed")
    assert ERROR["message"] in done.stderr


@pytest.mark.parametrize("logged", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_traceback_that_the_log_has_shown_is_not_shown_again(
    server: FakeServer, tmp_path: Path, logged: bool
) -> None:
    frames = ['  File "train.py", line 7', "    load()", "ValueError: blue"]
    error = {**ERROR, "traceback": "\n".join(["Traceback (most recent call last):", *frames, ""])}
    texts = ["[rank0]: Traceback (most recent call last):", frames[0], '  File "ours.py", line 1', *frames[1:]]
    texts[-1] = f"[rank0]: {texts[-1]}"  # as torch marks those of DDP
    ended = job(state="failed", error=error, attempt=1)
    server.on(JOB, *([ended, job(state="running"), ended] * 3))
    server.on(f"{JOB}/retry", *[Answer(job(state="running"), 201)] * 3)
    command = ["retry", "job_1", "--follow"]
    lines = [("log", at, {**line(at), "text": text}) for at, text in enumerate(texts if logged else texts[:-1], 1)]
    server.on(f"{JOB}/stream", *[sse(*lines, ("state", 8, event(8, "failed")), ("end", 8, {"state": "failed"}))] * 3)
    apart = run(server, *command)
    assert apart.stderr.count("ValueError: blue") == 1  # stdout may go to a file
    code, screen = in_terminal(command, environment_of(server))
    together = tmp_path / "together"
    program = ForkedProgram("torchyard.cli", *command, env=environment_of(server), cwd=tmp_path, log=together)
    assert (code, program.wait(120)) == (1, 1)
    for shown in (screen, together.read_text()):
        assert shown.count("ValueError: blue") == 1
        assert shown.count("train.py") == (1 if logged else 2)
        assert "rank 1 raised ValueError" in shown


def test_ctrl_c_leaves_the_job_running_and_prints_how_to_follow_it_again(server: FakeServer) -> None:
    server.on(JOB, job(state="running"))
    server.on(f"{JOB}/stream", sse(("log", 1, line(1))))
    with start_process(["logs", "job_1", "-f"], environment_of(server)) as process:
        assert process.stdout.readline() == "rank 0 | text 1\n"
        process.program.send_signal(signal.SIGINT)
        assert process.program.wait(120) == 130
        assert "torchyard logs job_1 -f" in process.stderr.read()
    assert all(request.method == "GET" for request in server.requests)


def test_follow_says_why_a_job_waits_and_where_in_the_queue(server: FakeServer) -> None:
    since = (NOW, NOW, "2026-01-02T02:00:00Z")
    reasons = zip(since, (2, 2, 1), ("needs 2 devices", "needs 2 devices", "queued"), strict=True)
    waits = [
        {"code": "waits", "message": message, "since": moment, "position": place} for moment, place, message in reasons
    ]
    ended = job(state="succeeded", started_at=NOW, finished_at=NOW)
    server.on("/v1/jobs", Answer(job(status_reason=waits[0]), 201))
    server.on(JOB, *(job(status_reason=reason) for reason in waits), job(state="running"), ended)
    server.on(f"{JOB}/stream", sse(("state", 1, event(1, "succeeded")), ("end", 2, {"state": "succeeded"})))
    done = run(server, "submit", "-", "--follow", stdin="trainer: script")
    said = [line for line in done.stderr.splitlines() if "queue" in line]
    assert [line[10:] for line in said] == [
        "queued     position 2 in the queue: needs 2 devices",
        "queued     position 1 in the queue",
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
    done = run(server, "retry", "job_1", "--follow")
    assert done.returncode == 0
    assert "          step 7  val/accuracy 0.25\n" in done.stderr
    server.on(JOB, job(state="failed"), job(state="running"), ended)
    _, screen = in_terminal(["retry", "job_1", "--follow"], environment_of(server), columns=80)
    assert "step 7  val/accuracy 0.25" in screen


def test_stacks_prints_each_rank_under_its_number(server: FakeServer, approved: Approved) -> None:
    server.on(JOB, job())
    taken = stacks(("File train.py, line 7 in load\n", None), (None, "has not answered"))
    server.on(f"{JOB}/stacks", Answer(taken, 202))
    done = run(server, "stacks", "job_1")
    assert done.stdout == approved("output")
    assert json.loads(run(server, "stacks", "job_1", "--json").stdout)["ranks"][1]["note"] == "has not answered"


def test_stacks_says_that_the_worker_does_not_answer_or_the_job_does_not_run(server: FakeServer) -> None:
    server.on(JOB, job())
    server.on(f"{JOB}/stacks", Answer({**stacks(), "taken_at": None}, 202))
    done = run(server, "stacks", "job_1", "--timeout", "0")
    assert (done.returncode, "the worker of job job_1 did not answer within 0 s" in done.stderr) == (1, True)
    assert is_clean_error(done)
    server.on(f"{JOB}/stacks", problem("conflict", 409, detail="job job_1 is queued"))
    done = run(server, "stacks", "job_1")
    assert (done.returncode, "job job_1 is queued" in done.stderr) == (1, True)
    assert is_clean_error(done)


def test_why_prints_the_advice_and_nothing_twice(server: FakeServer, approved: Approved) -> None:
    reason = {"code": "user_error", "message": "it broke", "since": NOW}
    server.on(JOB, job(state="failed", status_reason=reason))
    seen = [{"kind": "log", "text": "a\nline", "line": 7, "rank": 1}, {"kind": "rank", "text": "rank 1 ended"}]
    advice = {"headline": "failed on rank 1", "cause": "it broke", "evidence": seen, "steps": ["Correct it."]}
    server.on(f"{JOB}/advice", advice)
    server.on(f"{JOB}/checkpoints", page([]))
    assert "\n".join(run(server, "why", "job_1").stdout.splitlines()[:5]) == approved("output")
    assert json.loads(run(server, "why", "job_1", "--json").stdout)["advice"]["cause"] == "it broke"


@pytest.mark.parametrize("folder", ["kept", "artifacts"])
def test_why_names_the_files_of_a_job_without_a_checkpoint(server: FakeServer, folder: str) -> None:
    server.on(JOB, job(state="succeeded"))
    server.on(f"{JOB}/advice", {"headline": "succeeded"})
    server.on(f"{JOB}/checkpoints", page([]))
    file = {"id": "art_1", "path": "curve.png", "size": 1, "sha256": "0" * 64, "attempt": 1, "created_at": NOW}
    for name in ("kept", "artifacts"):
        server.on(f"{JOB}/{name}", page([file] if name == folder else []))
    shown = run(server, "why", "job_1").stdout.splitlines()
    assert not [line for line in shown if line.startswith("advice")]
    assert "torchyard cp job_1:  its files" in shown[-1]


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
    server.on(f"{JOB}/kept", page([]))
    server.on(f"{JOB}/artifacts", page([]))
    server.on(f"{JOB}/advice", {"headline": "it goes on"})
    shown = run(server, "why", "job_1").stdout
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
    shown = run(server, "why", "job_1").stdout
    assert shown.startswith("a failed: KeyError: 'mask'\n")
    assert shown.count("Original Traceback") == 1
    assert shown.index("Correct train.py.") < shown.index("Traceback")
    assert run(server, "show", "job_1").stdout.count("Original Traceback") == 1
    assert "  KeyError: 'mask'  " in run(server, "ps").stdout.splitlines()[1]


def match(number: int, text: str, *spans: tuple[int, int]) -> dict[str, Any]:
    return {**line(number), "text": text, "spans": [*spans]}


def found(*matches: dict[str, Any]) -> dict[str, Any]:
    return {**page([*matches]), "matches": len(matches), "first_line": 1, "last_line": 99, "complete": True}
