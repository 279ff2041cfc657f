"""A real `redis-server` for a test, on a unix socket in the test's own folder."""

from pathlib import Path
import subprocess
import time

from torchyard.cli import redis_server


class RedisServer:
    """Stopped by `stop`; may be started again on the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def start(self) -> None:
        argv = redis_server.argv(redis_server.find_binary(), folder=self._folder, socket_path=self._socket)
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not redis_server.answers(self._socket):
            assert self._process.poll() is None, "redis-server did not start"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
