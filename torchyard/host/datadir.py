"""The data directory as all programs know it: whose its files are, what jobs may not name, and its own Redis."""

from collections.abc import Iterable, Mapping
import os
from pathlib import Path

from torchyard.contract.errors import ConfigError

SERVER_FILE = "server.json"
"""A file of the data directory. `torchyard up` writes it, and removes it when it ends."""
TOKEN_FILE = "token"  # noqa: S105 - the name of a file
CHILDREN_LOCK = "children.lock"
"""A file of the data directory, which the programs that `torchyard up` starts hold locked."""
REDIS_USER = "torchyard"
_EMPTY = "empty"
_MOST_LINKS = 40
"""On one way. The kernel follows no more."""
WRITABLE = "rw"
"""Follows an allowed folder that jobs may write: `DIR:rw`."""


def own_data_dir() -> Path:
    """Returns the data directory of this user's own service on this machine."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "torchyard"


def make_files_private() -> int:
    """Makes files that this process creates from now on readable by their owner alone. Returns the umask of before."""
    return os.umask(0o077)


def enter_empty_folder(data_dir: Path) -> None:
    """Makes an empty folder in the data directory the working directory of this process: `/proc/self/cwd` and relative
    names, whoever makes them, lead to nothing. Raises OSError.
    """
    folder = data_dir / _EMPTY
    folder.mkdir(mode=0o500, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chdir(descriptor)
    finally:
        os.close(descriptor)


def check_allowed_paths(data_dir: Path, allowed: Mapping[Path, bool]) -> None:
    """Raises ConfigError if a folder whose files jobs may name contains the data directory, or lies in it, or lies in
    a folder that jobs may write: they could replace it by a link.

    `allowed`: the folders, and whether jobs may write each of them.
    """
    own = data_dir.resolve()
    for path in allowed:
        found = path.resolve()
        if own.is_relative_to(found) or found.is_relative_to(own):
            how = "contains" if own.is_relative_to(found) else "lies in"
            raise ConfigError(
                f"jobs must not name files in {path}: it {how} the data directory {data_dir}, which has the token,"
                " the database and every job's files. Allow another folder (--allow-path, TORCHYARD_ALLOW_PATHS)"
            )
        for parent, writable in allowed.items():
            inside = found != parent.resolve() and found.is_relative_to(parent.resolve())
            if writable and (inside or folder_on_the_way(path, [parent]) is not None):
                raise ConfigError(
                    f"jobs must not be allowed {path} beside {parent}{os.pathsep}{WRITABLE}: they may write there, so"
                    f" they could replace it by a link to other files. Leave {path} out, or allow it elsewhere"
                )


def folder_on_the_way(path: Path, folders: Iterable[Path]) -> Path | None:
    """Returns the one of `folders` that has a name on the way to `path`, links included, or None.

    Who may write that folder decides where the path leads.
    """
    wanted = {identity: folder for folder in folders if (identity := _identity(folder)) is not None}
    current, names, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    while names and links <= _MOST_LINKS:
        if (found := wanted.get(_identity(current) or (-1, -1))) is not None:
            return found
        name = names.pop()
        try:
            target = (current / name).readlink()
        except OSError:  # it is no link
            current = current.parent if name == ".." else current / name
            continue
        links += 1
        current = Path("/") if target.is_absolute() else current
        names += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return None


def parse_allowed_paths(text: str) -> dict[Path, bool]:
    """Returns the folders in `DIR:DIR:rw:…`, and whether jobs may write each of them."""
    found: dict[Path, bool] = {}
    last: Path | None = None
    for part in text.split(os.pathsep):
        if part == WRITABLE and last is not None:
            found[last] = True
        elif part:
            last = Path(part)
            found.setdefault(last, False)
    return found


def format_allowed_paths(folders: Mapping[Path, bool]) -> str:
    """Returns the text from which `parse_allowed_paths` reads these absolute folders."""
    return os.pathsep.join(f"{path}:{WRITABLE}" if writable else str(path) for path, writable in folders.items())


def redis_password_file(folder: Path) -> Path:
    """Returns the file with the password of the embedded Redis that keeps its data in `folder`."""
    return folder / "password"


def redis_url(folder: Path, *, socket: Path | None = None) -> str:
    """Returns the address of the embedded Redis that keeps its data in `folder`, with the password if it has one.

    `socket`: its socket, if that is not in `folder`. Raises ConfigError if the password cannot be read.
    """
    path = socket or folder / "redis.sock"
    try:
        password = redis_password_file(folder).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return f"unix://{path}"
    except OSError as error:
        raise ConfigError(f"the password of Redis cannot be read: {error}") from None
    return f"unix://{REDIS_USER}:{password}@{path}"


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
