"""The worker of a machine that has joined a service: `torchyard join` starts it, restarts it, and stops it."""

from collections.abc import Callable, Mapping
import contextlib
from dataclasses import dataclass, field
import os
from pathlib import Path
import signal
import time
from types import FrameType
from typing import NoReturn

from torchyard.cli.up import programs
from torchyard.cli.up.child import Child
from torchyard.cli.up.datadir import DataDir
from torchyard.cli.up.environment import environ, worker_variables
from torchyard.contract.errors import ConfigError
from torchyard.host import inspection
from torchyard.host.datadir import check_allowed_paths, make_files_private
from torchyard.host.privatefile import is_held, open_own, write_held

PID_FILE = "join.pid"
"""A file of the data directory with the pid of this program, which holds it locked."""
_STOP_S, _LEAVE_S = 50.0, 20.0
"""Seconds that the worker may take to save its jobs and end, and to leave them to the next one."""
_POLL_S = 0.2


@dataclass(frozen=True)
class Options:
    """The options of `torchyard join`."""

    data_dir: Path
    cpu_slots: int | None = None
    allow_paths: Mapping[Path, bool] = field(default_factory=dict[Path, bool])
    """Folders below which jobs may name files, and whether they may write each of them."""


class RemoteWorker:
    """Runs the worker of this machine as a child process. `say` is called with what the user is told."""

    def __init__(self, options: Options, *, say: Callable[[str], None]) -> None:
        self.data = DataDir(options.data_dir.absolute())
        self._options = options
        self._say = say
        self._child: Child | None = None
        self._signals = 0
        self._updated = False

    def check(self) -> None:
        """Raises ConfigError and Conflict for what `run` refuses. Changes nothing."""
        check_allowed_paths(self.data.root, self._options.allow_paths)
        self.data.check_own()
        self.data.check_free()

    def run(self, again: Callable[[], NoReturn]) -> None:
        """Works until SIGINT, SIGTERM or SIGHUP. A second signal kills. On SIGUSR1 the worker leaves its jobs to the
        next one, which `again` starts in place of this process.

        Raises ConfigError, and Conflict if the data directory is taken.
        """
        programs.check_installed()
        inspection.forbid()
        check_allowed_paths(self.data.root, self._options.allow_paths)
        umask = make_files_private()
        try:
            self.data.create()
        except OSError as error:
            raise ConfigError(f"the data directory cannot be made: {error}") from None
        with self.data.lock() as keep:
            self._watch_signals()
            env = {
                **environ(settings=True),
                **worker_variables(
                    cpu_slots=self._options.cpu_slots, allow_paths=self._options.allow_paths, umask=umask
                ),
                "TORCHYARD_DATA_DIR": str(self.data.root),
            }
            argv = programs.argv("worker")
            self._child = child = Child("worker", argv, env=env, log=self.data.logs / "worker.log", keep=keep)
            with write_held(self.data.root / PID_FILE, str(os.getpid())):
                self._serve(child)
            (self.data.root / PID_FILE).unlink(missing_ok=True)
        if self._updated:
            os.umask(umask)
            again()

    def _serve(self, child: Child) -> None:
        child.start()
        try:
            while not (self._signals or self._updated):
                if (how := child.died()) is not None:
                    why = f"\n  {error}" if (error := child.last_error()) is not None else ""
                    self._say(f"the worker {how}; restarting in {child.pause:g} s. Its log: {child.log}{why}")
                if child.due:
                    child.start()
                time.sleep(_POLL_S)
        finally:
            self._stop(child)

    def _stop(self, child: Child) -> None:
        if self._updated and not self._signals:
            self._say("Starting the new version. Jobs continue.")
            child.stop(signal.SIGTERM, within=_LEAVE_S)
            return
        self._say("Stopping. Running jobs get time to save, and return to the queue. Ctrl-C again kills.")
        if not child.stop(signal.SIGINT, within=_STOP_S):
            self._say(f"the worker did not stop within {_STOP_S:g} s and was killed. Its log: {child.log}")

    def _watch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_update)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1 and self._child is not None:
            self._child.kill()
            os._exit(1)

    def _on_update(self, _number: int, _frame: FrameType | None) -> None:
        self._updated = True


def restart(data_dir: Path) -> bool:
    """Has the `join` that runs on the data directory start its newest version, while jobs go on. Returns whether one
    runs.
    """
    with contextlib.suppress(OSError, ValueError), open_own(data_dir / PID_FILE) as file:
        if is_held(file):
            os.kill(int(file.read(20)), signal.SIGUSR1)
            return True
    return False
