"""The data directory of `torchyard up`: locks, token and `server.json`."""

from collections.abc import Generator, Mapping
import contextlib
from contextlib import contextmanager
from dataclasses import dataclass, field
import fcntl
import json
import os
from pathlib import Path
import secrets
import subprocess
import time
from typing import IO

from torchyard.contract.errors import ConfigError, Conflict
from torchyard.host.datadir import CHILDREN_LOCK, SERVER_FILE, TOKEN_FILE, redis_password_file
from torchyard.host.privatefile import open_own, write_held, write_private

_KEPT = 2
_MOST_SECRET_BYTES = 4096
_PORT_FILE, _MOST_PORT = "port", 65_535
_CHILDREN_END_S = 60.0
"""How long the processes of an `up` that was killed may take to end."""


@dataclass(frozen=True)
class DataDir:
    """The paths of one data directory."""

    root: Path
    _held: list[IO[str]] = field(default_factory=list["IO[str]"], init=False, compare=False)
    """The newest two of `server.json`, which stay locked: who opened the one before may still look at its lock."""

    @property
    def server_file(self) -> Path:
        return self.root / SERVER_FILE

    @property
    def token_file(self) -> Path:
        return self.root / TOKEN_FILE

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def redis(self) -> Path:
        return self.root / "redis"

    def check_own(self) -> None:
        """Raises ConfigError for a data directory that came with a repository: its jobs would run, and its token be
        known.
        """
        if _is_tracked(self.root):
            raise ConfigError(
                f"git tracks files of the data directory {self.root}: they came with the repository. Name another"
                " folder with --data-dir, or remove them from git (`git rm -r --cached`) if they are yours"
            )

    def create(self) -> None:
        """Creates the folders, readable by their owner alone. Raises OSError."""
        for folder in (self.root, self.logs, self.redis):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.redis.chmod(0o700)

    def token(self) -> str:
        """Returns the data directory's admin token. Creates it at the first call."""
        return _secret(self.token_file)

    def redis_password(self) -> str:
        """Returns the password of the embedded Redis. Creates it at the first call."""
        return _secret(redis_password_file(self.redis))

    def last_port(self) -> int:
        """Returns the port of the last service on the directory, 0 if it is not known."""
        try:
            port = int((self.root / _PORT_FILE).read_text())
        except (OSError, ValueError):
            return 0
        return port if 0 < port <= _MOST_PORT else 0

    def keep_port(self, port: int) -> None:
        """Keeps the port for `last_port`."""
        write_private(self.root / _PORT_FILE, str(port))

    def publish(self, *, url: str, token: str, certificate: str | None, processes: Mapping[str, int]) -> None:
        """Replaces `server.json`: a reader sees the old one or the new one. It is locked while this process lives."""
        content = {"url": url, "token": token, "pid": os.getpid(), "processes": dict(processes)}
        content |= {} if certificate is None else {"certificate": certificate}
        self._held.append(write_held(self.server_file, json.dumps(content)))
        if len(self._held) > _KEPT:
            self._held.pop(0).close()

    def check_free(self) -> None:
        """Raises Conflict if another `up` uses the directory, which need not exist."""
        with contextlib.suppress(FileNotFoundError), (self.root / "lock").open("rb") as own:
            self._take(own.fileno())

    @contextmanager
    def lock(self) -> Generator[int]:
        """Locks the directory against a second `up`, and waits until the children of an earlier one have ended.

        Yields a descriptor that the children must inherit. Raises Conflict.
        """
        with (self.root / "lock").open("ab") as own, (self.root / CHILDREN_LOCK).open("ab") as children:
            self._take(own.fileno())
            earlier = self._holder()
            self.server_file.unlink(missing_ok=True)  # left by an `up` that was killed
            deadline = time.monotonic() + _CHILDREN_END_S
            while not _try_lock(children.fileno()):
                if time.monotonic() > deadline:
                    raise Conflict(f"processes of an earlier `torchyard up` on {self.root} still run{earlier}")
                time.sleep(0.1)
            yield children.fileno()

    def _take(self, lock: int) -> None:
        if not _try_lock(lock):
            raise Conflict(f"{self.root} is in use by another `torchyard up`{self._holder()}")

    def _holder(self) -> str:
        try:
            server = json.loads(self.server_file.read_bytes())
        except (OSError, ValueError):
            return ", which is just starting or stopping"
        return f": {server.get('url')}, pid {server.get('pid')}, its processes {server.get('processes')}"


def last_lines(log: Path) -> str:
    """Returns the last lines of a log, at most fifteen."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-15:])


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _secret(path: Path) -> str:
    """Returns the secret in the file `path`. Creates it at the first call: 256 random bits. Raises ConfigError."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    try:
        with open_own(path) as file:
            return file.read(_MOST_SECRET_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} has a secret, and is not used: {said}. `chmod 600` it if it is yours") from None


def _is_tracked(path: Path) -> bool:
    """Whether a file below this path is in the index of the git repository around it. False without git."""
    command = ("git", "-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit", "ls-files", "--", path.name)
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        answer = subprocess.run(
            command, cwd=path.parent, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return False
    return answer.returncode == 0 and bool(answer.stdout)
