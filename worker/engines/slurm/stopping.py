"""Has attempts end: by a request in their files, and by the commands that make it seen at once."""

from collections.abc import Callable
import contextlib
from datetime import timedelta
import logging

from torchyard.contract.states import EndReason
from worker.engines.slurm.commands import Commands, NoAnswer
from worker.engines.slurm.errands import Errands
from worker.engines.slurm.tracked import Tracked

logger = logging.getLogger(__name__)


class Stopping:
    """Nothing but `end` waits for a command. `notify` is called after each one."""

    def __init__(self, commands: Commands, *, notify: Callable[[], object]) -> None:
        self._commands = commands
        self._notify = notify
        self._errands = Errands()

    def request(self, tracked: Tracked, reason: EndReason, *, grace: timedelta) -> None:
        """Writes the request to stop, and has Slurm follow it, unless that was sent a moment ago."""
        try:
            if not tracked.request_stop(reason, grace=grace):
                return
        except OSError as error:
            logger.warning("%s: cannot write a stop request; asking Slurm only: %s", tracked.name, error)
            self._soon(lambda: self._tell_without_request(tracked, at_once=not grace))
            return
        if tracked.requester.stuck or (tracked.requester.overdue and not tracked.fresh):
            self.cancel(tracked.name)
        else:
            self._soon(lambda: self._tell(tracked))

    def cancel(self, name: str) -> None:
        """Has Slurm end the job with this name."""
        self._soon(lambda: self._commands.cancel(name))

    def notify(self, name: str) -> None:
        """Has the coordinator of the job look at its files."""
        self._soon(lambda: self._commands.notify(name))

    def end(self, tracked: Tracked) -> None:
        """Ends an attempt without a grace."""
        with contextlib.suppress(OSError):  # without the request, Slurm alone ends it
            tracked.request_stop(EndReason.WORKER_LOST, grace=timedelta())
        with contextlib.suppress(NoAnswer):  # it is asked again
            if tracked.fresh:
                self._commands.notify(tracked.name)
            self._commands.cancel(tracked.name)

    def close(self) -> None:
        """Has the thread end that calls the commands, after those that it was given."""
        self._errands.close()

    def _soon(self, command: Callable[[], None]) -> None:
        self._errands.do(command)
        self._errands.do(self._notify)

    def _tell(self, tracked: Tracked) -> None:
        """Has the coordinator of a job that runs look at its files, and Slurm end one that waits."""
        if tracked.fresh:  # before it listens, the signal would be lost; when it starts, it looks by itself
            self._commands.notify(tracked.name)
        else:
            self._commands.cancel(tracked.name, pending=True)

    def _tell_without_request(self, tracked: Tracked, *, at_once: bool) -> None:
        """As `_tell`, if the disk takes no request: the coordinator takes it for a preemption."""
        self._commands.cancel(tracked.name, pending=not at_once)
        if not at_once and tracked.fresh:
            self._commands.terminate(tracked.name)
