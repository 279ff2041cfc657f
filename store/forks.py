"""Imports what all programs with a store share, and forks them: `python -P -m store.forks FD…`.

`torchyard up` starts the migration, the API, the worker and the controller so, as they share half of their imports. It
writes to each of the sockets FD what is to run on it. This process reads none of that, so it knows no secret that a
fork could inherit. It has one thread, executes nothing, and ends after its last fork.
"""

from collections.abc import Callable
from importlib import import_module
import json
import os
from pathlib import Path
import runpy
import select
import shlex
import signal
import socket
import sys
import time
from typing import Any

from setproctitle import setproctitle, setthreadtitle

from torchyard.host import failpoints, inspection
from torchyard.host.collector import paused
from torchyard.host.parent import end_with_parent

_SHARED = (
    *("scheduling.cluster", "store.store", "store.bundles.folder", "torchyard.contract.spec.spec"),
    *("store.bundles.upload", "store.housekeeping", "store.cluster.shown_workers"),
)
"""The most of what the API and the worker both import."""
_MOST = 65_536
_POLL_S = 0.001


def main() -> None:
    inspection.forbid()
    channels = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    up = os.getppid()
    with paused():
        for name in _SHARED:
            import_module(name)
    run = _fork_each(channels, up)
    if run is not None:
        run()


def _fork_each(channels: list[socket.socket], up: int) -> Callable[[], None] | None:
    """Forks a program for each socket, as soon as something is written to it. Returns only in a fork what it runs."""
    waiting = [*channels]
    while waiting:
        for channel in select.select(waiting, [], [])[0]:
            waiting.remove(channel)
            middle = os.fork()
            if middle == 0:
                for other in waiting:
                    other.close()  # what is sent to another program is not for this one
                return _orphan(channel, up)
            os.waitpid(middle, 0)
            channel.close()
    return None


def _orphan(channel: socket.socket, up: int) -> Callable[[], None]:
    """Forks again and ends, so that `up`, which adopts orphans meanwhile, becomes the parent."""
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    os.setsid()
    while os.getppid() == middle:
        time.sleep(_POLL_S)
    end_with_parent(signal.SIGTERM)
    if os.getppid() != up:
        os._exit(1)
    return lambda: _become(channel)


def _become(channel: socket.socket) -> None:
    """Runs the program that the socket names in this process, and tells its pid. Ends it where nobody listens."""
    try:
        asked, log = _read(channel)
        channel.sendall(b"%d" % os.getpid())
    except (OSError, ValueError):
        os._exit(1)
    channel.close()
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    _rename([sys.executable, "-P", "-m", asked["module"]])
    os.environ.clear()
    os.environ.update(asked["env"])
    failpoints.arm()
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


def _read(channel: socket.socket) -> tuple[Any, int]:
    """Returns the request and the descriptor of the log; the other descriptor that comes with it stays open."""
    first, descriptors, _, _ = socket.recv_fds(channel, _MOST, 2)
    log, _ = descriptors
    parts = [first]
    while part := channel.recv(_MOST):
        parts.append(part)
    return json.loads(b"".join(parts)), log


def _rename(command: list[str]) -> None:
    """Has `ps` show the command that starts the program otherwise.

    Call it while the environment is the first one: setproctitle finds by it where the command line lies.
    """
    setproctitle(shlex.join(command))
    setthreadtitle(Path(command[0]).name)
    sys.argv = command[:1]


if __name__ == "__main__":
    main()
