"""Real servers for tests: each lives as long as its `with` block."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
import secrets
import shutil
import socket
import subprocess
import time

from redis import Redis, RedisError

from torchyard.cli.up import redis_server as embedded
from torchyard.host.datadir import redis_password_file, redis_url

_START_S = 30
_FIRST_PORT, _PORTS = 20_000, 12_000
_ADMINISTRATOR = "tests"
_PASSWORD = "the-embedded-password"


@contextmanager
def redis_server(tmp: Path, *, writes: bool = False) -> Generator[str]:
    """Runs a real `redis-server` as `torchyard up` does, with its data in `tmp`, and yields its URL.

    `administered` connects as another user, who may use every command. With `writes` it writes what it has when it
    ends: while the disk is busy, it lets up to two seconds of commands wait.
    """
    path = embedded.socket_in(tmp)
    redis_password_file(tmp).write_text(_PASSWORD)
    embedded.users_file(tmp).write_text(f"{embedded.users(_PASSWORD)}user {_ADMINISTRATOR} on nopass ~* +@all\n")
    argv = embedded.argv(embedded.find_binary(), folder=tmp, socket_path=path)
    url = redis_url(tmp, socket=path)
    try:
        with _running(argv, lambda: _answers(url), asked=writes):
            yield url
    finally:
        if path.parent != tmp:
            shutil.rmtree(path.parent)


def administered(url: str) -> Redis:
    """Returns a client of a `redis_server` that may use every command."""
    return Redis(unix_socket_path=url.rpartition("@")[2], username=_ADMINISTRATOR, password="")


@contextmanager
def redis_server_with_password(tmp: Path, password: str) -> Generator[str]:
    """Runs a real `redis-server` on a TCP port with a password, as in production, and yields its URL."""
    port = free_port()
    settings = ("--bind", "127.0.0.1", "--port", str(port), "--requirepass", password, "--dir", str(tmp))
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    with _running([str(embedded.find_binary()), *settings], lambda: _answers(url)):
        yield url


def free_port() -> int:
    """Returns a port that nobody has. Linux gives none of these to who asks for any, so a server can take it later."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def _running(argv: Sequence[str], answers: Callable[[], bool], *, asked: bool = False) -> Generator[None]:
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_S
            while not answers():
                assert server.poll() is None, "redis-server ended"
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.01)
            yield
            if asked:
                server.terminate()
                server.wait(_START_S)
        finally:
            server.kill()


def _answers(url: str) -> bool:
    try:
        with Redis.from_url(url, socket_timeout=1) as redis:
            return bool(redis.ping())
    except RedisError:
        return False
