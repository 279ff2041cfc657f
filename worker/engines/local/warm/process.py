"""The warm process of one worker: `python -P -u -m worker.engines.local.warm.process DESCRIPTOR`.

It has imported what every training needs, has one thread, and has never used a GPU. For each request that comes through
the socket DESCRIPTOR it forks a supervisor, which forks the ranks. It exits when the worker closes its end of the
socket; its supervisors go on.
"""

import os
from pathlib import Path
import select
import signal
import socket
import sys
from typing import NoReturn

from setproctitle import setproctitle

from torchyard.contract.attempts.rundir import RunDir
from torchyard.host import inspection
from torchyard.host.identity import identity_of
from worker.engines.local.launchers import secrets
from worker.engines.local.supervisor import supervisor
from worker.engines.local.warm import memory, preload
from worker.engines.local.warm.messages import LIMIT, ForkReply, ForkRequest, Ready
from worker.host import forks, process

TITLE = "torchyard:warm-process"


def main() -> None:
    """Serves until the worker closes its end of the socket. Exits with 1 and a message if it must not be forked."""
    inspection.forbid()
    channel = socket.socket(fileno=int(sys.argv[1]))
    setproctitle(TITLE)
    try:
        loaded = preload.load()
    except (ImportError, preload.NotForkable) as error:
        sys.exit(str(error))
    ready = Ready(modules=sorted(loaded))
    channel.send(ready.to_json().encode())
    _serve(channel)
    os._exit(0)  # the exit of an interpreter with torch takes a second


def _serve(channel: socket.socket) -> None:
    child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _do_nothing)  # only a signal with a handler writes to the wakeup descriptor
    joining = memory.join_pages()  # a request waits for one page at most
    pause_s: float | None = 0.0
    while True:
        ready, _, _ = select.select([channel, child_ended], [], [], pause_s)
        if not ready and next(joining, None) is None:
            pause_s = None
        if child_ended in ready:
            os.read(child_ended, 4096)
            for _ in process.reap_children():
                pass
        if channel in ready and not _answer(channel):
            return


def _answer(channel: socket.socket) -> bool:
    """Forks a supervisor for the next request. Returns False if the worker has closed its end."""
    message, descriptors, _, _ = socket.recv_fds(channel, LIMIT, 3)
    if not message:
        return False
    try:
        run, (lock, log, values) = Path(ForkRequest.from_json(message).run), descriptors
        pid = forks.fork(lambda: _supervise(run, log, values), keep=(lock, log, values))
        reply = ForkReply(process=identity_of(pid))  # it was not reaped yet
    except (ValueError, OSError) as error:
        reply = ForkReply(trouble=str(error))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    channel.send(reply.to_json().encode())
    return True


def _supervise(run: Path, log: int, values: int) -> NoReturn:
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    supervisor.supervise(RunDir(run), secrets.read(values))
    sys.exit()


def _do_nothing(*_: object) -> None:
    pass


if __name__ == "__main__":
    main()
