"""Runs commands as a document has them, beside a service that one of them starts."""

from collections.abc import Generator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import re
import shlex
import signal
import subprocess
import sys

from tests.e2e.service import is_running, processes_naming, until
from torchyard.client import Client

ROOT = Path(__file__).parents[2]
_HERE_DOCUMENT = re.compile(r"<<'?END'?\n.*?^END$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_BEFORE_PROGRAM = re.compile(r"do|\w+=.*", re.DOTALL)
_ENDS_COMMAND, _REDIRECTS = ";|&()\n", "<>"


def blocks(text: str, language: str) -> list[str]:
    """Returns the fenced blocks of a Markdown text in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands_in(block: str, program: str) -> list[list[str]]:
    """Returns the arguments of each call of the program in a block of a shell's commands."""
    text = _COMMENT.sub("", _HERE_DOCUMENT.sub("", block)).replace("\\\n", " ")
    words = shlex.shlex(text, posix=True, punctuation_chars=_ENDS_COMMAND + _REDIRECTS)
    words.whitespace, words.whitespace_split, words.commenters = " \t", True, ""
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set(_REDIRECTS):
            next(words)
        elif set(word) <= set(_ENDS_COMMAND):
            found.append([])
        elif found[-1] or not _BEFORE_PROGRAM.fullmatch(word):
            found[-1].append(word)
    return [command[1:] for command in found if command and Path(command[0]).name == program]


def started_by(goal: str) -> str:
    """Returns the command with which a goal of make ends, once all is installed and built."""
    command = ["make", "--dry-run", "--no-print-directory", "--old-file=.venv/.complete", *goal.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def run_blocks(commands: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Runs blocks of a shell's commands in one shell, which stops at the first failure. Returns their output."""
    script = "\n".join(["set -euo pipefail", *commands])
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running_by(command: str, folder: Path, environment: dict[str, str], *, warm: bool = True) -> Generator[None]:
    """Runs the command that starts the service, and stops it as Ctrl-C does. No process may be left.

    `warm`: whether its worker has a warm process, which is awaited.
    """
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )

    def output() -> str:
        return (folder / "up.log").read_text()

    try:
        until(lambda: "Ready." in output() or not is_running(process.pid), what="the service is ready", context=output)
        assert is_running(process.pid), output()
        server = json.loads((folder / ".torchyard" / "server.json").read_bytes())  # whatever login the caller has
        with Client(server["url"], server["token"]) as client:  # several jobs that start cold cost more
            until(lambda: not warm or _starts_warm(client), what="jobs start warm", context=output)
        yield
    finally:
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(90)
        left = processes_naming(folder / ".torchyard")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert (code, left) == (0, []), output()


def _starts_warm(client: Client) -> bool:
    return any(worker.starts is not None and worker.starts.mode == "warm" for worker in client.workers.list())


def environment_in(folder: Path) -> dict[str, str]:
    """Returns an environment with the commands on PATH, and without a login or a server."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("TORCHYARD_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**plain, "PATH": path, "XDG_CONFIG_HOME": str(folder / "config")}
