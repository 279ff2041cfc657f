"""Blocking calls for asyncio, in threads that the process does not wait for when it ends."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
import fcntl
import os
from queue import SimpleQueue
import threading
from typing import Any, TypeVar

T = TypeVar("T")

_READ = 1 << 18
_PIPE_BYTES = 1 << 20


class Worker:
    """Runs calls one after the other in a thread of its own."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Returns what will have the result of the call. If it is cancelled, the call goes on unheard."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the future raises it
                _later(loop, _fail, future, error)
            else:
                _later(loop, _succeed, future, result)

        self._calls.put(run)
        return future

    def _work(self) -> None:
        while True:
            self._calls.get()()


def stop(*tasks: asyncio.Task[Any]) -> None:
    """Has the tasks end. What they have raised is not told."""
    for task in tasks:
        if not task.cancel() and not task.cancelled():
            task.exception()


def widen_input() -> None:
    """Has a pipe at standard input hold more, which saves most of the turns of who reads it, where the system can."""
    with suppress(OSError, AttributeError):
        fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def read_some() -> bytes:
    """Returns what comes next on standard input; nothing at its end, and if there is none."""
    try:
        return os.read(0, _READ)
    except OSError:
        return b""


def write_all(descriptor: int, content: bytes) -> None:
    """Raises OSError."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _later(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call, *args)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
