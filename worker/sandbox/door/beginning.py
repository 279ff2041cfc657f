"""How the door of an attempt begins: as a fork of the agent, or of what runs first in a helper's sandbox."""

import os
from pathlib import Path
import socket
from typing import NoReturn

from setproctitle import setproctitle

from torchyard.contract.attempts.rundir import Env, RunDir, process_title
from torchyard.host import inspection
from worker.host import forks
from worker.sandbox.door.door import Door, Place
from worker.sandbox.door.variables import of_rank


def fork_door(place: Place, calls: socket.socket, *, ends: int, is_child: bool) -> None:
    """Forks the door, which may not be inspected. Nothing but `calls` and `ends` is open in it. Raises OSError.

    It ends, with all that it has started, once the descriptor `ends` is readable, or the calls have no other end.
    `is_child`: whether this process may have it as its child. Else it is that of whoever reaps what loses its parent.
    """
    keep = [calls.fileno(), ends]

    def serve() -> NoReturn:
        _serve(place, calls, ends)

    def leave() -> NoReturn:
        forks.fork(serve, keep=keep)
        os._exit(0)

    with inspection.forbidden():
        pid = forks.fork(serve if is_child else leave, keep=keep)
    if not is_child:
        os.waitpid(pid, 0)


def serve_in_helpers_sandbox(calls: socket.socket, ends: int) -> NoReturn:
    """Makes this process, which may not be inspected, the door of the attempt that its variables name."""
    run = RunDir.of_job(Path(os.environ[Env.RUN_DIR]))
    place = Place(
        job_id=os.environ[Env.JOB_ID],
        attempt=int(os.environ[Env.ATTEMPT]),
        variables=lambda rank: of_rank(run, rank),
        first=1,
    )
    _serve(place, calls, ends)


def _serve(place: Place, calls: socket.socket, ends: int) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    setproctitle(process_title(place.job_id, place.attempt, "door"))
    Door(place, calls, ends).serve()
