"""Keeps downloaded checkpoints in the user's cache, by the sha256 of their file, or of the list of their files."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
import fcntl
from functools import partial
import hashlib
import os
from pathlib import Path
import re
import shutil
from typing import TYPE_CHECKING

from torchyard.cli.weights import Weights, weights_of
from torchyard.contract.attempts.rundir import STATE_FILE, is_in_parts
from torchyard.contract.errors import DataError, ServerError
from torchyard.contract.files.paths import digest_of
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client

MOST_BYTES = 10 << 30
"""Of all files in the cache. Those that were used longest ago are removed."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class _Remote:
    """The state of a checkpoint on the server."""

    sha256: str
    suffix: str
    fetch: Callable[..., Path]
    """Downloads it, with the arguments `to` and `on_progress` of `Client.jobs.download`."""

    @classmethod
    def of(cls, weights: Weights) -> _Remote:
        """Raises NotFound if they have no state, and DataError if they are of no recipe."""
        from torchyard.client.download import file_to_download
        from torchyard.contract.recipes import REGISTRY

        if weights.trainer not in REGISTRY:
            of = weights.described if weights.job is None else f"job {weights.job}"
            raise DataError(f"{of} was trained by a script: only that script can use its checkpoints")
        in_parts = is_in_parts(file.path for file in weights.listed.files)
        file = None if in_parts else STATE_FILE
        sha256 = file_to_download(weights.listed, file, of=weights.described).sha256
        return cls(sha256, "" if in_parts else ".pt", partial(weights.fetch, file=file))


def checkpoint_of(client: Client, named: str) -> Path:
    """Returns the state of a recipe's checkpoint, named as `weights_of` reads it. Downloads it if need be.

    The digest of the file is checked whenever it is used. Raises DataError, NotFound and ServerError.
    """
    remote = _Remote.of(weights_of(client, named))
    if not _SHA256.fullmatch(remote.sha256):
        raise ServerError(f"the server sent an invalid sha256: {remote.sha256[:100]!r}")
    folder = _folder()
    target = folder / f"{remote.sha256}{remote.suffix}"
    if _is_there(target, remote.sha256):
        return target
    with _locked(folder):
        if not _is_there(target, remote.sha256):  # another process may have downloaded it
            _remove(target)
            _download(remote, target)
            _trim(folder, target)
    return target


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "torchyard" / "checkpoints"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _is_there(target: Path, sha256: str) -> bool:
    """Returns whether the file or folder is there, and is what it was. Counts it as used now."""
    if not target.exists():
        return False
    if target.is_dir():
        files = [path for path in target.rglob("*") if not path.is_dir()]
        found = digest_of((str(path.relative_to(target)), _sha256(path)) for path in files)
    else:
        found = _sha256(target)
    if found == sha256:
        os.utime(target)
    return found == sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Locks out the downloads of other processes. The lock ends with the process at the latest."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            terminal.note("Waits for another download to end.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _download(remote: _Remote, target: Path) -> None:
    from torchyard.cli.progress import Transfer

    before = os.umask(0o077)
    try:
        with Transfer() as transfer:
            remote.fetch(to=target, on_progress=transfer.show)
    finally:
        os.umask(before)


def _trim(folder: Path, kept: Path) -> None:
    """Removes what was used longest ago, until the rest is small enough. Who has a file open can read on."""
    found = [(path, path.stat().st_mtime, _size(path)) for path in folder.iterdir() if path.name != "lock"]
    total = sum(size for _, _, size in found)
    for path, _, size in sorted(found, key=lambda item: item[1]):
        if total > MOST_BYTES and path != kept:
            _remove(path)
            total -= size


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
