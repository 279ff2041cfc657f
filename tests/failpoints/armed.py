"""Runs a function in a process of its own that failpoints may kill.

It is forked from a process without threads that has imported the actions, so that it costs almost nothing.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import time
from typing import Any

from tests import forks
from torchyard.contract.errors import Conflict, NotFound, StaleClaim
from torchyard.host import failpoints

REFUSED = 3
"""Exit code if the store refused the action because another process was faster."""
DEADLINE_S = 60.0

forks.preload("tests.failpoints.actions", "tests.failpoints.armed")


class ArmedProcess:
    """Runs `action(*arguments)` with the failpoints of `plan`; `log` contains the names of those that were reached."""

    def __init__(self, action: Callable[..., None], *arguments: Any, plan: str, log: Path) -> None:
        self._log = log
        self._process = forks.context.Process(
            target=_run, args=(action, arguments, f"{plan};log={log}" if plan else "")
        )
        self._process.start()

    @property
    def acted(self) -> list[str]:
        return self._log.read_text().split() if self._log.exists() else []

    @property
    def runs(self) -> bool:
        return self._process.is_alive()

    def wait(self) -> int:
        """Waits for its end. Returns its exit code, or minus the number of the signal that ended it."""
        self._process.join(DEADLINE_S)
        assert self._process.exitcode is not None, "the action does not end"
        return self._process.exitcode

    def wait_for_stop(self) -> None:
        """Waits until it is stopped at a failpoint."""
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
def started(action: Callable[..., None], *arguments: Any, plan: str, log: Path) -> Generator[ArmedProcess]:
    """Starts the process and kills it at the end of the block."""
    child = ArmedProcess(action, *arguments, plan=plan, log=log)
    try:
        yield child
    finally:
        child.kill()


def until(condition: Callable[[], object], what: str, *, every: float = 0.01) -> None:
    """Polls `condition` at intervals of `every` seconds; fails naming `what`."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(every)


def _run(action: Callable[..., None], arguments: tuple[Any, ...], plan: str) -> None:
    os.environ[failpoints.VARIABLE] = plan  # for the programs that this one starts, too
    failpoints.arm()
    try:
        action(*arguments)
    except (StaleClaim, NotFound, Conflict):
        os._exit(REFUSED)
