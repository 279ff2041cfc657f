"""What users expect of any command line: a version, short help, exit codes, and names that need no typing."""

from collections.abc import Iterator
import itertools
import json
from pathlib import Path
import re
import shlex
import subprocess
from subprocess import CompletedProcess
import sys
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process, run_process
from tests.torchyard.cli.reading import commands, read
from tests.torchyard.client.answers import DATA, JOB, job, metrics, page, serve_checkpoint
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, serving
import torchyard
from torchyard.cli import app
from torchyard.cli.commands import COMMANDS, EVERYDAY
from torchyard.cli.helptexts import EXAMPLES

CHECKPOINT: dict[str, Any] = {
    "id": "ckpt_1",
    "epoch": None,
    "step": 9,
    "attempt": 1,
    "metrics": {},
    "size": 7,
    "sha256": "0" * 64,
    "aliases": ["latest"],
    "created_at": "2026-01-02T03:04:05Z",
}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        server.on(JOB, job())
        yield server


@pytest.mark.parametrize("module", ["torchyard", pytest.param("torchyard.cli", marks=pytest.mark.thorough)])
def test_the_version_is_printed(module: str) -> None:
    command = [sys.executable, "-P", "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"torchyard {torchyard.__version__}\n"), done.stderr


def _contexts(command: Any, name: str, parent: Any = None) -> Iterator[Any]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield context
    for word in command.list_commands(context) if isinstance(command, TyperGroup) else ():
        yield from _contexts(command.get_command(context, word), word, context)


def test_every_command_has_short_help() -> None:
    contexts = {found.command_path: found for found in _contexts(typer.main.get_command(app), "torchyard")}
    for words in ("torchyard", "torchyard run", "torchyard tokens rm"):
        assert words in contexts
        short = run_in_process([*words.split()[1:], "-h"], environment(None, ""))
        assert short.returncode == 0, words
        assert short.stdout.startswith(f"Usage: {words} "), words
    for words, context in contexts.items():
        assert {"-h", "--help"} <= {*context.command.get_help_option_names(context)}, words
    assert run_in_process(["--help"], environment(None, "")).returncode == 0


def test_the_index_has_the_first_line_of_the_help_of_each_command() -> None:
    top: Any = typer.main.get_command(app)
    first = {name: top.get_command(None, name).help.partition("\n")[0] for name in COMMANDS}
    assert first == {name: each.summary for name, each in COMMANDS.items()}


def test_the_first_screen_has_what_everybody_needs() -> None:
    shown = run_in_process(["--help"], environment(None, "")).stdout
    first = shown.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in first] == [*EVERYDAY]
    assert len(first) <= 15
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["notify"], "notifications"), (["cancle"], "cancel"), (["tokens", "new"], "add")],
)
def test_a_name_that_is_not_there_says_the_command_that_is_meant(words: list[str], meant: str) -> None:
    done = run_in_process(words, environment(None, ""))
    assert done.returncode == 2
    assert f"`{meant}`" in done.stderr


def test_help_with_a_command_is_the_help_of_the_command() -> None:
    one, other = (run_in_process(words, environment(None, "")) for words in (["help", "ps"], ["ps", "--help"]))
    assert (one.returncode, one.stdout) == (0, other.stdout)


def test_each_example_of_the_help_is_read_by_the_command_line() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for example in itertools.chain.from_iterable(EXAMPLES.values()):
        read(shlex.split(example.partition(" < ")[0])[1:])


def test_the_help_names_no_type_of_python() -> None:
    for name, command in commands().items():
        shown = command.get_help(command.make_context(name, [], resilient_parsing=True))
        assert re.search(r"<(str|int|float|list|bool|path)\b", shown) is None, name


def test_an_option_after_the_program_is_the_programs_own(server: FakeServer, tmp_path: Path) -> None:
    done = run_in_process(["run", "absent.py", "-h"], environment(server.url, TOKEN), cwd=tmp_path)
    assert "Usage" not in done.stdout + done.stderr


@pytest.mark.parametrize("option", [[], ["--csv"], ["--json"], ["--plot"]])
def test_a_metric_that_is_not_there_fails_and_names_those_that_are(
    server: FakeServer, option: list[str], approved: Approved
) -> None:
    server.on(f"{JOB}/metrics", metrics(loss=[1]))
    known = [{"key": key, "count": 1, "latest": 1.0} for key in ("loss", "lr")]
    jobs = [{"job_id": "job_1", "position": 1, "keys": known}]
    server.on("/v1/metrics", {"jobs": jobs, "series": [], "max_points": 1500})
    done = _run(server, "metrics", "job_1", "-k", "loss", "-k", "typo", *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("stderr")


def test_a_captured_checkpoint_is_listed_with_its_file(server: FakeServer) -> None:
    file = {"path": "out/epoch-1.pt", "size": 7, "sha256": "0" * 64}
    captured = {**CHECKPOINT, "files": [file], "source": "captured"}
    server.on(f"{JOB}/checkpoints", page([captured, {**CHECKPOINT, "id": "ckpt_0", "files": [file]}]))
    for command in ("checkpoints", "show"):
        lines = _run(server, command, "job_1").stdout.splitlines()
        heading, first, second = lines[-3:]
        assert first.index("out/epoch-1.pt") == heading.index("FILE"), command
        assert "out/epoch-1.pt" not in second


def test_of_a_captured_checkpoint_no_step_is_shown_where_its_program_told_none(server: FakeServer) -> None:
    file = {"path": "a.pt", "size": 7, "sha256": "0" * 64}
    captured = {**CHECKPOINT, "files": [file], "source": "captured"}
    server.on(f"{JOB}/checkpoints", page([{**captured, "step": step} for step in (0, 7)]))
    heading, first, second = _run(server, "checkpoints", "job_1").stdout.splitlines()[-3:]
    places = slice(heading.index("STEP"), heading.index("METRICS"))
    assert (first[places].strip(), second[places].strip()) == ("", "7")


def test_a_checkpoint_that_is_not_whole_is_listed_as_such(server: FakeServer) -> None:
    torn = {**CHECKPOINT, "files": [], "aliases": [], "damaged": True}
    server.on(f"{JOB}/checkpoints", page([torn, {**CHECKPOINT, "id": "ckpt_0", "files": [], "aliases": ["latest"]}]))
    for command in ("checkpoints", "show"):
        heading, first, second = _run(server, command, "job_1").stdout.splitlines()[-3:]
        at = heading.index("ALIASES")
        assert (first[at:].split("  ")[0].strip(), second[at:].split("  ")[0].strip()) == ("damaged", "latest")


def test_a_checkpoint_that_was_measured_again_is_listed_with_both_values(server: FakeServer) -> None:
    plain = {**CHECKPOINT, "files": [], "metrics": {"val/loss": 0.5}}
    again = {**plain, "remeasured": {"metrics": {"val/loss": 0.25}}}
    server.on(f"{JOB}/checkpoints", page([{**plain, "id": "ckpt_0"}, again]))
    for command in ("checkpoints", "show"):
        done = _run(server, command, "job_1")
        assert done.returncode == 0, done.stderr
        heading, first, second = done.stdout.splitlines()[-3:]
        assert second.index("val/loss 0.25") == heading.index("RE-EVALUATED"), command
        assert "val/loss 0.5 " in second
        assert not first[heading.index("RE-EVALUATED") : heading.index("ALIASES")].strip()


def test_a_download_takes_the_latest_checkpoint_where_none_is_the_best(server: FakeServer, tmp_path: Path) -> None:
    serve_checkpoint(server, DATA)
    server.on(f"{JOB}/checkpoints/latest", *server.answers.pop(f"{JOB}/checkpoints/best"))
    done = run_in_process(["download", "job_1", "-o", "it.pt"], environment(server.url, TOKEN), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "it.pt").read_bytes() == DATA


def test_the_beginning_of_a_workers_or_a_tokens_id_names_it(server: FakeServer) -> None:
    ids = [f"wrk_0192a{digit}" for digit in "01"]
    worker = {"state": "ready", "devices": [], "seen_at": "2026-01-02T03:04:05Z", "started_at": "2026-01-02T03:04:05Z"}
    views = [{**worker, "id": id, "name": f"box-{id[-1]}"} for id in ids]
    server.on("/v1/workers", page(views))
    server.on(f"/v1/workers/{ids[1]}/drain", views[1])
    assert _run(server, "drain", "wrk_0192a1", "--yes").stdout.startswith("box-1")
    several = _run(server, "drain", "wrk_0192a")
    assert several.returncode == 1 and all(id in several.stderr for id in ids)
    token = {"user": "admin", "name": "a", "scopes": [], "created_at": "2026-01-02T03:04:05Z"}
    token |= {"expires_at": None, "used_at": None, "revoked_at": None}
    server.on("/v1/tokens", page([{**token, "id": "tok_0192a0"}, {**token, "id": "tok_0193b1"}]))
    server.on("/v1/tokens/tok_0193b1", Answer(b"", 204))
    done = _run(server, "tokens", "rm", "tok_0193", "--json")
    assert (done.returncode, done.stdout) == (0, '{"revoked": ["tok_0193b1"]}\n'), done.stderr


@pytest.mark.parametrize("command", [["submit", "-"], ["retry", "job_1"]])
def test_a_key_of_the_user_is_sent(server: FakeServer, command: list[str]) -> None:
    for path in ("/v1/jobs", f"{JOB}/retry"):
        server.on(path, Answer(job(), 201))
    done = _run(server, *command, "--idempotency-key", "nightly-7", stdin='{"trainer": "script"}')
    assert done.returncode == 0, done.stderr
    assert server.requests[-1].headers["Idempotency-Key"] == "nightly-7"


def test_a_server_of_another_version_is_named_on_stderr(server: FakeServer) -> None:
    server.on(JOB, Answer(job(), headers={"Torchyard-Version": "7.3.1"}))
    done = run_process(["show", "job_1", "--json"], environment(server.url, TOKEN))
    assert (done.returncode, json.loads(done.stdout)["id"]) == (0, "job_1")
    assert done.stderr.startswith(f"warning: this client is Torchyard {torchyard.__version__}")
    assert len(done.stderr.splitlines()) == 1


def _run(server: FakeServer, *arguments: str, stdin: str = "") -> CompletedProcess[str]:
    return run_in_process(arguments, environment(server.url, TOKEN), stdin=stdin)
