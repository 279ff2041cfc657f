"""A program that may be killed at a failpoint: a function in a process of its own.

It is forked from a process without threads that has loaded what the scenes need, so that it costs next to nothing.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import multiprocessing
import os
from pathlib import Path
import signal
import time
from typing import Any

from torchyard.contract import failpoints
from torchyard.contract.errors import Conflict, NotFound, StaleClaim

REFUSED = 3
"""How it exits where the store refused what it wanted: another was faster."""
DEADLINE_S = 60.0

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.failpoints.actions", "tests.failpoints.armed"])


class ArmedProcess:
    """`scene(*arguments)` with failpoints armed as in `plan`; `log` has the names of those that acted."""

    def __init__(self, scene: Callable[..., None], *arguments: Any, plan: str, log: Path) -> None:
        self._log = log
        self._process = _forks.Process(target=_play, args=(scene, arguments, f"{plan};log={log}" if plan else ""))
        self._process.start()

    @property
    def acted(self) -> list[str]:
        return self._log.read_text().split() if self._log.exists() else []

    @property
    def runs(self) -> bool:
        return self._process.is_alive()

    def wait(self) -> int:
        """Its exit code, or minus the number of the signal that ended it."""
        self._process.join(DEADLINE_S)
        assert self._process.exitcode is not None, "the scene does not end"
        return self._process.exitcode

    def wait_for_stop(self) -> None:
        """Until it is stopped at a failpoint."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the failpoint is reached")

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        if self.runs:
            self._send(signal.SIGKILL)
            self.wait()

    def _send(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


@contextmanager
def started(scene: Callable[..., None], *arguments: Any, plan: str, log: Path) -> Generator[ArmedProcess]:
    """The child, which is dead when the block has ended."""
    child = ArmedProcess(scene, *arguments, plan=plan, log=log)
    try:
        yield child
    finally:
        child.kill()


def until(condition: Callable[[], object], what: str, *, every: float = 0.01) -> None:
    """Looks `every` so many seconds whether `condition` holds; fails naming `what`."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(every)


def _play(scene: Callable[..., None], arguments: tuple[Any, ...], plan: str) -> None:
    os.environ[failpoints.VARIABLE] = plan  # for the programs that this one starts, too
    failpoints.arm()
    try:
        scene(*arguments)
    except (StaleClaim, NotFound, Conflict):
        os._exit(REFUSED)
