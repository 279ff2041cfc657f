"""The run context of this process."""

import os
import signal

from torchyard.contract.attempts.rundir import RunDir
from torchyard.run.context import Run

_current: Run | None = None


def init() -> Run:
    """Returns the run context of this process. Every call returns the same one.

    In the service it installs a handler for SIGTERM, so that `should_stop` can return True. A program that never calls
    `should_stop` and ends without an error in the grace period has finished. It does not touch the process group.

    Returns:
        The run context: rank, world size, device, and the methods to log and save.

    Example:
        >>> run = torchyard.init()
        >>> run.rank, run.world_size
        (0, 1)
    """
    global _current  # noqa: PLW0603 a process is one rank of one run
    if _current is None:
        _current = Run(os.environ)
        _current.attach()
    return _current


def flush() -> None:
    """Writes what the run context of this process, if any, has not written yet, as its program has ended.

    Raises what `Run.flush` raises.
    """
    if _current is not None:
        _current.end_profile()
        _current.flush()


def has_finished(run: RunDir) -> bool:
    """Whether a program that ends without an error has done all its work: False if it may have stopped early.

    A program with its own handler of SIGTERM may always have been told to stop.
    """
    if _current is not None and _current.told_to_stop:
        return False
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        return not os.path.lexists(run.stop)
    return _current is not None and _current.hears_sigterm
