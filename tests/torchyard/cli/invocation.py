"""Runs the command line for a test: in this process, which takes milliseconds, or as a real process."""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
from dataclasses import dataclass
from functools import cache
import io
import os
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import IO
from unittest.mock import patch

import typer.main

from tests import forked, forks
from torchyard.cli import main

forks.preload("torchyard.cli")

_commands = cache(typer.main.get_command)
"""Makes the tree of commands once a process: it holds nothing of a call, and costs most of what a short one does."""


def run_in_process(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: str = "",
    cwd: Path | None = None,
    encoding: str = "utf-8",
) -> subprocess.CompletedProcess[str]:
    """Calls `main` with an environment, a working directory and pipes of its own. `encoding`: that of the output."""
    stdout, stderr = _pipe(encoding=encoding), _pipe(encoding=encoding)
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, environment, clear=True))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(patch.object(sys, "argv", ["torchyard", *arguments]))
        for name, stream in (("stdin", _pipe(stdin)), ("stdout", stdout), ("stderr", stderr)):
            stack.enter_context(patch.object(sys, name, stream))
        code = exit_code()
    return subprocess.CompletedProcess([*arguments], code, stdout=_text(stdout), stderr=_text(stderr))


def run_process(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    cwd: Path | None = None,
    prepare: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the command as a process of its own, to its end. `prepare` is called in it before."""
    return forked.run("torchyard.cli", *arguments, env=environment, cwd=cwd or Path.cwd(), prepare=prepare)


@dataclass(frozen=True)
class Started:
    """A process of the command. Its output is read as it writes it."""

    program: forked.ForkedProgram
    stdout: IO[str]
    stderr: IO[str]


@contextlib.contextmanager
def start_process(arguments: Sequence[str], environment: Mapping[str, str]) -> Generator[Started]:
    """Runs the command as a process of its own for the duration of the block, and kills it then."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        out, err = Path(folder, "stdout"), Path(folder, "stderr")
        for path in (out, err):
            os.mkfifo(path)
        program = forked.ForkedProgram(
            "torchyard.cli", *arguments, env=environment, cwd=Path.cwd(), log=out, stderr=err
        )
        stack.callback(program.kill)
        yield Started(program, *(stack.enter_context(path.open()) for path in (out, err)))


def exit_code() -> int:
    """Calls `main` as this process is. Returns the exit code."""
    try:
        with patch.object(typer.main, "get_command", _commands):
            main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def environment(url: str | None, token: str) -> dict[str, str]:
    """This process's environment, which names the server at `url`, or none."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("TORCHYARD_")}
    server = {} if url is None else {"TORCHYARD_URL": url, "TORCHYARD_TOKEN": token}
    return {**plain, "XDG_CONFIG_HOME": "/nonexistent", "XDG_DATA_HOME": "/proc/nonexistent", **server}


def _pipe(text: str = "", *, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), encoding=encoding)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()
