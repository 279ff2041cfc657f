"""The warm process of one worker: `python -P -u -m worker.engines.local.warm.process DESCRIPTOR`.

It has imported what every training needs, has one thread, and has never touched a GPU. For each request that comes
through the socket DESCRIPTOR it forks a supervisor, which forks the ranks. It ends when the worker's end is closed; its
supervisors go on.
"""

import os
from pathlib import Path
import select
import signal
import socket
import sys
from typing import NoReturn

from setproctitle import setproctitle

from torchyard.contract.records import ProcessIdentity
from worker.engines.local import supervisor
from worker.engines.local.warm import fork, preload
from worker.engines.local.warm.messages import LIMIT, Forked, Ready, Request

TITLE = "torchyard:warm process"


def main() -> None:
    """Serves until the worker's end of the socket is closed. Exits with 1, and a word, where it must not fork."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    setproctitle(TITLE)
    try:
        loaded = preload.load()
    except (ImportError, preload.Unfit) as error:
        sys.exit(str(error))
    ready = Ready(modules=sorted(loaded))
    channel.send(ready.to_json().encode())
    _serve(channel)
    os._exit(0)  # an interpreter with torch takes a second to be taken apart


def _serve(channel: socket.socket) -> None:
    ends, ended = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _wake)
    while True:
        ready, _, _ = select.select([channel, ends], [], [])
        if ends in ready:
            os.read(ends, 4096)
            _reap()
        if channel in ready and not _answer(channel):
            return


def _answer(channel: socket.socket) -> bool:
    """False once nobody asks any more."""
    message, descriptors, _, _ = socket.recv_fds(channel, LIMIT, 2)
    if not message:
        return False
    try:
        run, (lock, log) = Path(Request.from_json(message).run), descriptors
        pid = fork.child(lambda: _supervise(run, log), keep=(lock, log))
        answer = Forked(process=ProcessIdentity.of(pid))  # nobody has reaped it yet
    except (ValueError, OSError) as error:
        answer = Forked(trouble=str(error))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    channel.send(answer.to_json().encode())
    return True


def _supervise(run: Path, log: int) -> NoReturn:
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir("/")
    supervisor.supervise(run)
    sys.exit()


def _wake(*_: object) -> None:
    """A signal with a handler writes to the descriptor of `set_wakeup_fd`; one without does not."""


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return


if __name__ == "__main__":
    main()
