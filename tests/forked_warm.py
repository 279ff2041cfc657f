"""Has a worker that is a fork of a test fork its warm process too: to import torch takes seconds of a processor."""

from collections.abc import Iterator, Mapping, Sequence
import importlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import IO, Any, NoReturn

from worker.engines.local.warm import preload
from worker.host import forks, orphans

MODULES = ("worker.daemon", "worker.engines.local.warm.process", *preload.MODULES)
"""What the fork server preloads for it."""
_PROGRAM = "worker.engines.local.warm.process"


def apply() -> None:
    """Changes how this process starts the warm process, and nothing else that it starts."""
    orphans.subprocess = SimpleNamespace(Popen=_start, DEVNULL=subprocess.DEVNULL)  # pyrefly: ignore[bad-assignment]


def _start(command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], **options: Any) -> Any:
    if _PROGRAM not in command:
        return subprocess.Popen(command, env=env, pass_fds=pass_fds, **options)
    return _WarmProcess([*command[command.index(_PROGRAM) :]], env, pass_fds, options["stdout"])


class _WarmProcess:
    def __init__(self, argv: list[str], env: Mapping[str, str], keep: Sequence[int], log: IO[bytes] | None) -> None:
        assert log is None
        self.pid = forks.fork(lambda: _run(argv, env), keep=keep)

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


def _run(argv: list[str], env: Mapping[str, str]) -> NoReturn:
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    program: Any = importlib.import_module(argv[0])
    program.memory = SimpleNamespace(join_pages=_join_nothing)  # it would copy what it shares with its parents
    program.main()
    sys.exit()


def _join_nothing() -> Iterator[int]:
    return iter(())
