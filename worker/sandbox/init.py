"""The first process of an attempt's pid namespace. See pid_namespaces(7).

All processes of the attempt are below it, whatever they do, and the kernel kills them when it ends.
"""

from collections.abc import Callable
import os
import signal
from typing import NoReturn

from torchyard.host import inspection

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stay_first() -> None:
    """Makes this first process the agent itself, which has to reap what loses its parent. Raises OSError."""
    inspection.forbid()
    _ignore_signals()


def fork_agent(ended: Callable[[int], None]) -> None:
    """Goes on in a child, whose exit code `ended` gets. The first process reaps, and ends after that child.

    Raises OSError.
    """
    inspection.forbid()  # the attempt's processes may inspect each other, but not the first one
    agent = os.fork()
    if agent:
        _reap_until_exit_of(agent, ended)
    inspection.permit()
    os.setsid()  # the leader of the session so far is outside, without a pid here


def _reap_until_exit_of(agent: int, ended: Callable[[int], None]) -> NoReturn:
    try:
        _ignore_signals()
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == agent:
                ended(os.waitstatus_to_exitcode(status))
                break
    finally:
        os._exit(0)


def _ignore_signals() -> None:
    for number in _SIGNALS:  # the kernel drops those that have no handler
        signal.signal(number, signal.SIG_DFL)
