"""Who gives new jobs free names takes turns: of two at once, each would find the same one."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
import fcntl
import os
from pathlib import Path
import tempfile

_POLL_S = 0.05
_MOST_TURNS = 600
"""After so many polls it is named without a turn: whoever has it may be stopped."""


@asynccontextmanager
async def turn(sleep: Callable[[float], Awaitable[None]]) -> AsyncGenerator[None]:
    """Waits until no other process or thread of this user on this host is within such a block."""
    file = _opened()
    if file is None:
        yield
        return
    try:
        for _ in range(_MOST_TURNS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await sleep(_POLL_S)
        yield
    finally:
        os.close(file)


def _opened() -> int | None:
    """Returns the descriptor of a file that is locked; None where this user cannot have one."""
    path = Path(tempfile.gettempdir(), f"torchyard-names-{os.getuid()}")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    if os.fstat(file).st_uid != os.getuid():
        os.close(file)
        return None
    return file
