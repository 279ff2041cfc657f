"""Starts a program that ends when this process does."""

from collections.abc import Mapping, Sequence
import os
import signal
import subprocess
from typing import IO

from torchyard.host.parent import end_with_parent


def spawn(
    argv: Sequence[str],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes],
    env: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a program in a session of its own. It gets SIGTERM when this process ends, also if that was killed.

    `keep`: the descriptors that it inherits. Raises OSError.
    """
    parent = os.getpid()

    def prepare() -> None:
        end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=keep,
        preexec_fn=prepare,  # noqa: PLW1509 - nothing here starts a thread before
    )
