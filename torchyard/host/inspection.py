"""Whether other processes of the same user may inspect this one: its environment, memory, descriptors, and by ptrace.

See PR_SET_DUMPABLE in prctl(2), and proc(5). A process that executes a program may be inspected again. A fork keeps
the state of its parent.
"""

from collections.abc import Generator
from contextlib import contextmanager
import ctypes
import os

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4

_libc = ctypes.CDLL(None, use_errno=True)


def forbid() -> None:
    """Has the kernel refuse every inspection of this process, except by root. Raises OSError."""
    prctl(_PR_SET_DUMPABLE, 0)


def permit() -> None:
    """Lets processes of the same user inspect this one. Raises OSError."""
    prctl(_PR_SET_DUMPABLE, 1)


@contextmanager
def forbidden() -> Generator[None]:
    """Has the kernel refuse it for a while, for what is forked meanwhile: nobody finds that one before it can forbid it
    itself. Raises OSError."""
    before = prctl(_PR_GET_DUMPABLE)
    forbid()
    try:
        yield
    finally:
        prctl(_PR_SET_DUMPABLE, before)


def prctl(option: int, *values: int) -> int:
    """Calls prctl(2). Raises OSError."""
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    result = int(_libc.prctl(option, *arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
    return result
