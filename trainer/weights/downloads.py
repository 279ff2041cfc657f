"""Downloads published files once per cache, and checks their digests whenever they are loaded."""

from collections.abc import Generator
from contextlib import contextmanager
import errno
import fcntl
from http.client import HTTPException
import logging
import os
from pathlib import Path
import re
import socket
from typing import BinaryIO
from urllib.error import HTTPError

import torch

from torchyard.contract.errors import ConfigError, DataError
from trainer.weights.digests import open_regular, private_copy

DOWNLOAD_TIMEOUT_S = 60.0
"""Seconds without an answer after which a download fails."""

_DIGEST = re.compile(r"[-_]([0-9a-f]{8,64})\.\w+")
"""The end of a file's name: the first digits of its sha256."""
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}

logger = logging.getLogger(__name__)


def published_file(url: str, *, what: str) -> BinaryIO:
    """Returns a private copy of the file at `url`, whose name ends with the first digits of its sha256.

    Looks in $TORCH_HOME, then in the user's own cache. Downloads to $TORCH_HOME, or to the own cache if $TORCH_HOME
    cannot be written. A file with another digest is not used, and replaced where that is possible. Raises ConfigError
    if the name has no digest, and DataError, which names `what`, if the file cannot be had.
    """
    name = url.rsplit("/", 1)[-1]
    digest = _DIGEST.search(name)
    if digest is None:
        raise ConfigError(f"model.weights: the name of {url} has no digest to check: give the file:// URL of a file")
    file, *_ = files = [folder / name for folder in _folders()]
    refused: list[str] = []
    try:
        for file in files:
            if (content := _content(file, digest[1])) is not None:
                return content
            refused += [f"; {file} was there, but cannot be used"] if file.exists() else []
        for file in files:
            if (content := _downloaded(url, file, digest[1], may_fail=file != files[-1])) is not None:
                return content
        raise OSError("another program has changed the file")
    except (OSError, HTTPException, RuntimeError) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise DataError(
            f"model.weights: {what} cannot be downloaded from {url} to {file.parent}: {reason(error)}"
            f"{''.join(refused)}; give the file:// URL of a file, or `none`"
        ) from error


def reason(error: BaseException) -> str:
    """Returns the first line of what an error says."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _folders() -> list[Path]:
    """Returns the folders for weights: that of $TORCH_HOME, which the operator may offer for reading, and the own."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    own = Path(os.path.expanduser(cache)) / "torch" / "hub"  # noqa: PTH111 a user may have no home
    return [folder / "checkpoints" for folder in dict.fromkeys((Path(torch.hub.get_dir()), own))]


def _content(file: Path, digest: str) -> BinaryIO | None:
    """Returns the content. None if there is no file with this digest. Raises OSError if it cannot be copied."""
    try:
        source = open_regular(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        logger.warning("model.weights: %s was not used: %s", file, reason(error))
        return None
    with source:
        content, sha256 = private_copy(source)
    if sha256.startswith(digest):
        return content
    content.close()
    logger.warning("model.weights: %s was not used: its sha256 %s does not match its name", file, sha256)
    return None


def _downloaded(url: str, file: Path, digest: str, *, may_fail: bool) -> BinaryIO | None:
    """Replaces `file` by a download, which appears only when it is complete, and returns the content.

    Returns None if the folder cannot be written and `may_fail`. Raises OSError, HTTPException and RuntimeError.
    """
    try:
        with _locked(file.with_name(f".{file.name}.lock")), _socket_timeout(DOWNLOAD_TIMEOUT_S):
            if (content := _content(file, digest)) is not None:  # another process downloaded it
                return content
            file.unlink(missing_ok=True)
            torch.hub.download_url_to_file(url, str(file), digest, progress=False)
    except OSError as error:
        if may_fail and error.errno in _NOT_WRITABLE:
            return None
        raise
    return _content(file, digest)


@contextmanager
def _locked(file: Path) -> Generator[None]:
    """Locks out other processes of this host. The lock ends with the process at the latest."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # A job may have put a link or a pipe there.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(file, flags, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def _socket_timeout(seconds: float) -> Generator[None]:
    """Sets the default timeout of sockets: torch.hub has none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
