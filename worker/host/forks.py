"""Forks this process. A child keeps nothing of its parent's session, signal handlers and descriptors."""

from collections.abc import Callable, Collection
import contextlib
import os
import signal
import sys
import traceback
from typing import NoReturn

_SIGNAL_HANDLERS = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


def fork(run: Callable[[], NoReturn], *, keep: Collection[int] = (), make: Callable[[], int] | None = None) -> int:
    """Forks a child that calls `run`. Returns its pid. `make` takes the place of `os.fork`.

    Of its parent's session, signal handlers and descriptors, the child keeps only the descriptors `keep`. Every
    exception ends the child. A signal is blocked until the child has its own handlers. Raises OSError.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNAL_HANDLERS)
    try:
        pid = (make or os.fork)()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    code = 1
    try:
        _detach_from_parent(keep)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        run()
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:  # noqa: BLE001 nothing may return into the frames of the parent
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _detach_from_parent(keep: Collection[int]) -> None:
    """Begins a session, resets the signal handlers, and closes all descriptors but the standard ones and `keep`."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number, handler in _SIGNAL_HANDLERS.items():
        signal.signal(number, handler)
    first = 3
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)  # noqa: T201 as Python itself does
    return 1
