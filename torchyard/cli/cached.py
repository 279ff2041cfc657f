"""Keeps downloaded checkpoints in the user's cache, by the sha256 of their files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
import fcntl
import hashlib
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING

from torchyard.contract.errors import DataError, ServerError
from torchyard.contract.rundir import STATE_FILE
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client

MOST_BYTES = 10 << 30
"""Of all files in the cache. Those that were used longest ago are removed."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def checkpoint_of(client: Client, job: str, ref: str | None) -> Path:
    """Returns the state of a recipe's checkpoint; without `ref` the best, else the newest. Downloads it if need be.

    The digest of the file is checked whenever it is used. Raises DataError, NotFound and ServerError.
    """
    from torchyard.client.download import file_to_download
    from torchyard.contract.recipes import REGISTRY

    found = client.get(job).view
    if found.spec.trainer not in REGISTRY:
        raise DataError(f"job {found.name} is no recipe: only its script can use its checkpoints")
    checkpoint = client.checkpoint(found.id, ref)
    sha256 = file_to_download(checkpoint, STATE_FILE).sha256
    if not _SHA256.fullmatch(sha256):
        raise ServerError(f"the server lists {sha256[:100]!r} as a sha256")
    folder = _folder()
    target = folder / f"{sha256}.pt"
    if _is_there(target, sha256):
        return target
    with _locked(folder):
        if not _is_there(target, sha256):  # another process may have downloaded it
            _download(client, found.id, checkpoint.id, target)
            _trim(folder, target)
    return target


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "torchyard" / "checkpoints"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _is_there(target: Path, sha256: str) -> bool:
    """Returns whether the file is there, whole. Counts it as used now, and removes it if it is not what it was."""
    try:
        with target.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False
    if whole:
        os.utime(target)
    else:
        target.unlink(missing_ok=True)
    return whole


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


def _download(client: Client, job_id: str, checkpoint_id: str, target: Path) -> None:
    from torchyard.cli.progress import Transfer

    before = os.umask(0o077)
    try:
        with Transfer() as transfer:
            client.download(job_id, checkpoint_id, file=STATE_FILE, to=target, on_progress=transfer.show)
    finally:
        os.umask(before)


def _trim(folder: Path, kept: Path) -> None:
    """Removes what was used longest ago, until the rest is small enough. Who has a file open can read on."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file() and path.name != "lock"]
    total = sum(facts.st_size for _, facts in files)
    for path, facts in sorted(files, key=lambda item: item[1].st_mtime):
        if total > MOST_BYTES and path != kept:
            path.unlink(missing_ok=True)
            total -= facts.st_size
