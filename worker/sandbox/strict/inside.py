"""What runs in a sandbox that a helper has made, before the job's program: `python -I -S inside.py PROGRAM [ARGS…]`.

It forks the door of the attempt, which waits for calls at the socket that `TORCHYARD_DOOR` names, and becomes the
program. Until then it needs the standard library alone: each start of a job waits for it.
"""

import os
import socket
import sys
from typing import NoReturn

_DOOR = "TORCHYARD_DOOR"


def main() -> NoReturn:
    path = os.environ.pop(_DOOR, None)
    if path is not None:
        _fork_door(path)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 it is what the job asked for


def _fork_door(path: str) -> None:
    """Forks the door, which may not be inspected from the start. Raises OSError."""
    calls = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)  # noqa: PTH120 nothing more is imported
    calls.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")  # noqa: PTH119 an address has 107 bytes at most
    ends = os.pidfd_open(os.getpid())
    child = os.fork()
    if child == 0:
        sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))  # noqa: PTH100
        from torchyard.host import inspection

        inspection.forbid()
        if os.fork() == 0:  # so that no program of the job has the door as its child
            _become_door(calls, ends)
        os._exit(0)
    os.waitpid(child, 0)
    for descriptor in (calls.detach(), folder, ends):
        os.close(descriptor)


def _become_door(calls: socket.socket, ends: int) -> NoReturn:
    import site

    try:
        os.setsid()
        site.main()
        from worker.sandbox.door.beginning import serve_in_helpers_sandbox

        serve_in_helpers_sandbox(calls, ends)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
