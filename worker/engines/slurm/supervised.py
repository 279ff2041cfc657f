"""The supervisor of one node's ranks, as a child of the process that keeps in touch with the coordinator."""

from collections.abc import Callable, Mapping
from datetime import timedelta
import functools
import os
import signal
import socket
import traceback
from typing import NoReturn

from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.parent import end_with_parent
from torchyard.host.recordfiles import write_record
from worker.engines.local.supervisor.ending import log
from worker.engines.local.supervisor.supervisor import supervise
from worker.host import process

_ORPHANED = signal.SIGUSR2
_KILL = timedelta(seconds=30)


class Supervised:
    """One supervisor. If its parent is killed, it ends its ranks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self.exit_code: int | None = None
        """The exit code, or minus the number of the signal that ended it. None while it runs."""

    @classmethod
    def start(
        cls, run: RunDir, secrets: Mapping[str, str], *, listener: socket.socket | None, close: Callable[[], None]
    ) -> "Supervised":
        """Forks the supervisor. `close` closes in the child what is not its own. Raises OSError."""
        process.become_subreaper()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            close()
            _supervise(run, secrets, listener, parent)
        if listener is not None:
            listener.close()
        return cls(pid)

    def fileno(self) -> int:
        """Becomes readable when it has ended."""
        return self._pidfd

    @property
    def ended(self) -> bool:
        if self.exit_code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code is not None

    def stop(self, *, at_once: bool) -> None:
        """Stops it by a signal, as its files cannot be written."""
        if not self.ended:
            os.kill(self._pid, signal.SIGKILL if at_once else signal.SIGTERM)

    def kill(self) -> None:
        """Kills it and all that is below it, without its help. Waits until they have ended, for a while."""
        process.kill_all(lambda: process.descendants(os.getpid()), timeout=_KILL)
        for pid, code in process.reap_children():
            self.exit_code = code if pid == self._pid else self.exit_code


def _supervise(run: RunDir, secrets: Mapping[str, str], listener: socket.socket | None, parent: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # what is ignored stays so in the programs of the job
        signal.signal(_ORPHANED, functools.partial(_stop_at_once, run))
        end_with_parent(_ORPHANED)
        if os.getppid() != parent:
            _stop_at_once(run)
        supervise(run, secrets, listener=listener)
        code = 0
    except SystemExit as error:
        log(str(error.code))
    except BaseException:
        log(traceback.format_exc())
        raise
    finally:
        os._exit(code)


def _stop_at_once(run: RunDir, *_: object) -> None:
    write_record(run.stop, StopRequest(reason=EndReason.WORKER_LOST, grace=timedelta()))
