"""Real servers for tests: each lives as long as its `with` block."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
import shutil
import subprocess
import time

from torchyard.cli import redis_server as embedded

_START_S = 30


@contextmanager
def redis_server(tmp: Path) -> Generator[str]:
    """A real `redis-server` on a unix socket, with its data in `tmp`: the URL."""
    socket = embedded.socket_in(tmp)
    argv = embedded.argv(embedded.find_binary(), folder=tmp, socket_path=socket)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_S
            while not embedded.answers(socket):
                assert server.poll() is None, "redis-server ended"
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.01)
            yield f"unix://{socket}"
        finally:
            server.kill()
            if socket.parent != tmp:
                shutil.rmtree(socket.parent)
