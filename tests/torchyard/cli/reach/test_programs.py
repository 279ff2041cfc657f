"""`exec` and `shell` against a real handler: what a user types, sees and gets back."""

from collections.abc import Iterator, Mapping
import hashlib
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from tests.rows import each_row
from tests.torchyard.cli.invocation import environment, run_in_process, run_process, start_process
from tests.torchyard.cli.terminal import Terminal, terminal
from tests.torchyard.client.fake_server import TOKEN
from tests.torchyard.client.reaching.peer import Peer, peer

ROOT = Path(__file__).parents[4]


@pytest.fixture
def job() -> Iterator[Peer]:
    with peer() as other:
        yield other


def environment_of(job: Peer) -> Mapping[str, str]:
    return {**environment(job.url, TOKEN), "PYTHONPATH": str(ROOT), "PS1": "$ ", "TERM": "xterm"}


def start(job: Peer, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "torchyard", "exec", "job_1", "--", *words]
    return subprocess.Popen(
        command, env=environment_of(job), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_exec_passes_on_the_streams_as_they_are_and_the_exit_code(job: Peer) -> None:
    content = bytes(range(256)) * 20_000
    done = start(job, "sh", "-c", "cat; echo wrong >&2; exit 7")
    out, err = done.communicate(content)
    assert (done.returncode, err) == (7, b"wrong\n")
    assert out == content
    assert job.orders[0].argv == ["sh", "-c", "cat; echo wrong >&2; exit 7"]


def test_exec_passes_on_signals_and_tells_that_of_the_programs_end(job: Peer) -> None:
    script = "trap 'echo caught' INT; echo ready; while :; do read line || exit; $line; done"
    running = start(job, "bash", "-c", script)
    assert running.stdin is not None and running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == b"caught\n"
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate()
    assert (running.returncode, err) == (128 + signal.SIGTERM, b"")


def test_exec_ends_a_program_whose_output_nobody_reads(job: Peer) -> None:
    with start_process(["exec", "job_1", "--", "yes"], environment_of(job)) as running:
        running.stdout.read(4)
        running.stdout.close()
        assert running.program.wait() == 128 + signal.SIGPIPE


def test_options_after_the_job_are_the_programs(job: Peer) -> None:
    done = run_process(["exec", "job_1", "--", "printf", "%s ", "--rank", "-h", "--"], environment_of(job))
    assert done.stdout == "--rank -h -- "


@each_row(
    ("words", "said"),
    [
        (["exec", "job_1"], "give a program"),
        (["exec", "job_1", "--"], "give a program"),
        (["exec", "--rank", "-1", "job_1", "ls"], "--rank"),
        (["exec", "job_1", "--", "ls", "x" * 100_001], "100000"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_started(job: Peer, words: list[str], said: str) -> None:
    done = run_in_process(words, environment_of(job))
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert job.orders == []


def test_a_shell_has_the_size_of_the_terminal_and_its_keys_and_joins_again_after_a_cut(job: Peer) -> None:
    with terminal(["shell", "job_1"], environment_of(job), rows=31, columns=97) as shell:
        _say(shell, "stty size", "31 97")
        shell.resize(1, 1)
        shell.type("while [ $(stty size | tr -d ' ') != 11 ]; do :; done; echo sm''all\r")
        shell.wait_for("small")
        shell.resize(24, 80)
        shell.type("sh -c 'echo begun; exec sleep 1000'\r")
        shell.wait_for("begun\r\n")
        shell.type("\x03")
        _say(shell, "echo $?; kept=7", "130")
        job.cut()
        shell.wait_for("connected again")
        _say(shell, "echo $kept", "7")
        shell.type("exit 3\r")
        assert shell.wait() == 3


def test_a_paste_of_5_mb_comes_whole_although_its_reader_is_slower(job: Peer) -> None:
    text = "0123456789" * 500_000
    with terminal(["shell", "job_1"], environment_of(job)) as shell:
        shell.type(f"stty raw -echo; echo rea''dy; head -c {len(text)} | md5sum; stty sane\r")
        shell.wait_for("ready")
        shell.type(text)
        shell.wait_for(hashlib.md5(text.encode()).hexdigest())
        shell.type("exit\r")
        assert shell.wait() == 0


def test_leaving_a_shell_ends_it_and_gives_the_terminal_back(job: Peer) -> None:
    with terminal(["shell", "job_1"], environment_of(job)) as shell:
        before = shell.modes()
        _say(shell, "trap '' HUP; echo $((6 * 7))", "42")
        assert shell.modes() != before
        shell.type("\r~.")
        assert shell.wait() == 0
        assert shell.modes() == before
        assert "lost" not in shell.screen and "Traceback" not in shell.screen


@pytest.mark.parametrize(
    "how",
    [
        "cut",
        "stopped",
        *(pytest.param(how, marks=pytest.mark.thorough) for how in ("stopped a moment before the job", "begun again")),
    ],
)
def test_a_shell_whose_job_ends_says_so_and_gives_the_terminal_back(job: Peer, how: str) -> None:
    with terminal(["shell", "job_1"], environment_of(job)) as shell:
        before = shell.modes()
        _say(shell, "echo $((6 * 7))", "42")
        job.has_ended = how in {"cut", "stopped"}
        job.ends_when_asked = how == "stopped a moment before the job"
        job.attempt += how == "begun again"
        if how == "cut":
            job.cut()
        else:
            job.stop()
        assert shell.wait() == 1
        said = "attempt 1 has ended" if how == "begun again" else "the job has ended"
        assert f"\r\nerror: {said}" in shell.screen
        assert "the connection is lost" not in shell.screen
        assert shell.modes() == before


def _say(shell: Terminal, command: str, answer: str) -> None:
    """Has the shell run a command, and waits for its output."""
    shell.type(f"{command}\r")
    shell.wait_for(f"{command}\r\n")
    shell.wait_for(f"{answer}\r\n")
