"""Hears signals in a thread: Python calls no handler while the main thread waits in C, such as for a collective."""

from collections.abc import Callable
import contextlib
import os
import signal
import threading


def hear(react: Callable[[int], object]) -> None:
    """Calls `react` in a thread with the number of each signal that has a handler in Python.

    Only the main thread may call it. A program that sets a wakeup descriptor of its own hears them instead.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
        return
    os.register_at_fork(after_in_child=lambda: _forget(writing))
    threading.Thread(target=_listen, args=(reading, react), name="torchyard signals", daemon=True).start()


def _forget(writing: int) -> None:
    """Keeps a forked child's signals from the thread of its parent."""
    current = signal.set_wakeup_fd(-1)
    if current not in (-1, writing):  # the program's own
        signal.set_wakeup_fd(current)


def _listen(reading: int, react: Callable[[int], object]) -> None:
    with contextlib.suppress(OSError):  # the program has closed the descriptor
        while numbers := os.read(reading, 512):
            for number in numbers:
                react(number)
