"""Programs of the service as forks of the fork server, which has imported what they import: Python starts but once."""

from collections.abc import Callable, Mapping
import contextlib
import gc
from multiprocessing import connection
import os
from pathlib import Path
import resource
import runpy
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory
from threading import Lock

from setproctitle import getproctitle

from tests import forks
from torchyard.host import failpoints

_LONGEST_S = 240
_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}
_turn = Lock()
"""Held to start a process and to look for an end: an exit code is read but once, and each start looks for others'."""

forks.preload(__name__)


class ForkedProgram:
    """`python -P -m MODULE ARGUMENTS`: the part of `subprocess.Popen` that tests use.

    `log` has its output, and that to stderr unless there is a file for it. None of its files exceeds `file_bytes`.
    `prepare` is called in the process before the program begins.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        stderr: Path | None = None,
        file_bytes: int | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._process = forks.context.Process(
            target=_run,
            args=([module, *arguments],),
            kwargs={
                "env": {**env},
                "cwd": cwd,
                "outputs": (log, stderr or log),
                "file_bytes": file_bytes,
                "prepare": prepare,
            },
        )
        with _turn:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        """Returns the exit code if it has ended, minus the number of the signal that ended it."""
        with _turn:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code. Raises subprocess.TimeoutExpired."""
        connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its parent has reaped it since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it if it runs, and waits for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait()


def run(
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path,
    file_bytes: int | None = None,
    prepare: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    with TemporaryDirectory() as folder:
        outputs = Path(folder) / "stdout", Path(folder) / "stderr"
        program = ForkedProgram(
            *(module, *arguments),
            env=env,
            cwd=cwd,
            log=outputs[0],
            stderr=outputs[1],
            file_bytes=file_bytes,
            prepare=prepare,
        )
        try:
            code = program.wait(_LONGEST_S)
        finally:
            program.kill()
        out, err = (path.read_text() for path in outputs)
        return subprocess.CompletedProcess([module, *arguments], code, out, err)


def _run(
    argv: list[str],
    *,
    env: dict[str, str],
    cwd: Path,
    outputs: tuple[Path, Path],
    file_bytes: int | None,
    prepare: Callable[[], None] | None,
) -> None:
    gc.freeze()  # a collection would look through all that the server has imported
    for number, handler in _DEFAULTS.items():
        signal.signal(number, handler)
    for descriptor, path in enumerate(outputs, start=1):
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, descriptor)
        os.close(output)
    sys.stdout, sys.stderr = forks.open_output(1, "<stdout>"), forks.open_output(2, "<stderr>")
    getproctitle()  # a title needs the place of the variables that this process began with
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    failpoints.arm()
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    if prepare is not None:
        prepare()
    sys.argv = argv
    if not hasattr(sys.modules.get(argv[0]), "__path__"):
        sys.modules.pop(argv[0], None)  # a test may have imported it: it runs anew
    sys.modules.pop(f"{argv[0]}.__main__", None)
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
