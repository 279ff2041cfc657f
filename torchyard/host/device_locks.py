"""Who holds the GPUs of this host: each worker locks a file for each GPU that it offers."""

from dataclasses import dataclass
import os
from pathlib import Path
import pwd
from typing import Any

from torchyard.contract.wire.codec import parse_object
from torchyard.host import terminal

FOLDER = Path("/tmp")  # noqa: S108 the same for every worker of the host, whoever runs it
_BEGIN, _END = "torchyard-", ".lock"
_LOCKS = Path("/proc/locks")
_MOST_BYTES = 10_000
_LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Holder:
    """A worker that holds a GPU. Anybody of the host may have written its data directory."""

    pid: int
    data_dir: str | None

    def __str__(self) -> str:
        where = "" if self.data_dir is None else f", data in {terminal.plain(self.data_dir)[:_LONGEST_SHOWN]}"
        return f"the worker of {_user(self.pid)} (pid {self.pid}{where})"


def path_of(uuid: str, *, folder: Path = FOLDER) -> Path:
    return folder / f"{_BEGIN}{uuid}{_END}"


def holders(*, folder: Path = FOLDER) -> dict[str, Holder]:
    """Returns who holds which GPU, by its UUID. Workers of another process namespace are not seen."""
    pids = _locked()
    found: dict[str, Holder] = {}
    for path in sorted(folder.glob(f"{_BEGIN}GPU-*{_END}")):
        try:
            pid = pids.get(path.stat(follow_symlinks=False).st_ino)
        except OSError:
            continue
        if pid is not None:
            found[path.name.removeprefix(_BEGIN).removesuffix(_END)] = Holder(pid, _data_dir(path))
    return found


def written_in(descriptor: int) -> dict[str, Any]:
    """Returns what is written in a lock file, which anybody of the host may have done. Raises ValueError, OSError."""
    return parse_object(os.pread(descriptor, _MOST_BYTES, 0))


def _locked() -> dict[int, int]:
    """Returns the process that holds a lock of the whole file, by the number of its inode."""
    try:
        lines = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        return {}
    return {int(parts[5].rpartition(":")[2]): int(parts[4]) for parts in lines if parts[1] == "FLOCK"}


def _data_dir(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return str(written_in(descriptor)["data_dir"])
    except (OSError, ValueError, KeyError):
        return None
    finally:
        os.close(descriptor)


def _user(pid: int) -> str:
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "another user"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
