"""Real servers and databases for tests: each lives as long as its `with` block, or its folder."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
import shutil
import subprocess
from tempfile import TemporaryDirectory
import time

from alembic import command

from migrations.__main__ import configuration
from store.database import Database
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


def database(tmp: Path) -> Database:
    """A migrated SQLite database in `tmp`. The caller closes it."""
    path = tmp / "torchyard.db"
    path.write_bytes(_migrated())
    return Database(f"sqlite:///{path}")


@cache
def _migrated() -> bytes:
    """A database file with the newest tables: migrating costs more than most tests do."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "torchyard.db"
        command.upgrade(configuration(f"sqlite:///{path}"), "head")
        return path.read_bytes()
