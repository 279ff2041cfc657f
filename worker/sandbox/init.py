"""The first process of an attempt, mostly of its pid namespace: see pid_namespaces(7).

All processes of the attempt are below it, whatever they do. In a pid namespace, the kernel kills them when it ends.
"""

from collections.abc import Callable
import contextlib
import os
import signal
import threading
from typing import NoReturn

from torchyard.host import inspection
from worker.host import process
from worker.sandbox.threads import Names

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stay_first() -> None:
    """Makes this first process the agent itself, which has to reap what loses its parent. Raises OSError."""
    inspection.forbid()
    _handle_signals(signal.SIG_DFL)  # the kernel drops those that have no handler


def fork_agent(ended: Callable[[int], None], *, stops: Callable[[], bool], names: Names | None = None) -> None:
    """Goes on in a child, whose exit code `ended` gets. The first process reaps, and ends after that child.

    If `stops` says then that the attempt is asked to stop, it ends after all others: they have a grace to save.
    `names`: it answers these calls besides, and must be above all processes that make them. Raises OSError.
    """
    process.become_subreaper()
    inspection.forbid()  # the attempt's processes may inspect each other, but not the first one
    agent = os.fork()
    if agent:
        _reap_until_exit_of(agent, ended, stops, names)
    if names is not None:
        names.close()
    inspection.permit()
    os.setsid()  # the leader of the session so far is outside, without a pid here


def reap_all() -> None:
    """Waits until this process has no child."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _reap_until_exit_of(
    agent: int, ended: Callable[[int], None], stops: Callable[[], bool], names: Names | None
) -> NoReturn:
    try:
        _handle_signals(signal.SIG_IGN)
        if names is not None:
            threading.Thread(target=names.answer, daemon=True).start()
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == agent:
                ended(os.waitstatus_to_exitcode(status))
                break
        if stops():
            reap_all()
    finally:
        os._exit(0)


def _handle_signals(handler: signal.Handlers) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)
