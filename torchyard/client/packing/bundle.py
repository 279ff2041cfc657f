"""Writes a folder's files into a temporary tar, and notices if one of them changes meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import hashlib
import heapq
import os
from pathlib import Path
import stat
import tempfile
from typing import IO, Self
import unicodedata

from torchyard.client.packing.leftout import LeftOut
from torchyard.client.packing.listing import Found, Listing, list_files
from torchyard.client.packing.rules import IGNORE_FILE
from torchyard.contract.bundles import MAX_BUNDLE_FILES, Names, bundle_url
from torchyard.contract.errors import ConfigError, InvalidBundle, TooLarge
from torchyard.contract.tar import END, header, padding
from torchyard.host import disk, terminal

MAX_SIZE = 200 << 20
"""The most bytes that are packed, unless the caller allows more."""
LARGE = 10 << 20
"""A file of more bytes is listed as large: it may be data, which is better not sent with each change of the code."""

_CHUNK = 1 << 20
_MOST_NAMED = 10


@dataclass(frozen=True)
class Bundle:
    """A packed folder. Its tar is a temporary file until `close`.

    `large` has the bytes of each large file, and `skipped` the reason for which a file cannot be packed. `left_out` is
    what git or the folder's own rules leave out, and `missed` what a program may look for in vain: the first few paths.
    """

    path: Path
    sha256: str
    size: int
    files: Sequence[str]
    large: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: Sequence[LeftOut] = ()
    missed: Sequence[str] = ()

    @property
    def url(self) -> str:
        """What names the bundle in a job spec."""
        return bundle_url(self.sha256)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the temporary file."""
        self.path.unlink(missing_ok=True)


def pack(
    folder: str | Path = ".",
    *,
    max_size: int = MAX_SIZE,
    needed: str | None = None,
    asks_git: bool = True,
    include: Sequence[str] = (),
) -> Bundle:
    """Packs what git tracks or does not ignore in the folder; without git, or if it is not asked, all its files.

    `include` are paths and patterns of files that are packed although git ignores them; so are those that a `!` line of
    `.torchyardignore` names. Its other lines name what is left out; `.env` files are, unless a `!` line names them. The
    same files give the same bundle on every machine.

    Raises ConfigError if a file cannot be read or changes meanwhile, if `needed` is not among the files, if a path of
    `include` names none, or if there are none where git is not asked; InvalidBundle for names that not every machine
    can have, TooLarge for more than `max_size` bytes, and OSError if the disk is full.
    """
    folder = Path(folder)
    listing = list_files(folder, asks_git=asks_git, include=include)
    files = _by_name(listing.files)
    if not files and not asks_git:
        raise ConfigError(_why_empty(folder, listing))
    if needed is not None:
        _require(folder, needed, files, listing.skipped)
    _check_size(files, max_size)
    tar = tempfile.NamedTemporaryFile(prefix="torchyard-", suffix=".tar", delete=False)  # noqa: SIM115 - closed below
    try:
        with tar:  # the last bytes are written when it is closed
            sha256, size = _write(tar, files)
        _check_unchanged(files)
    except BaseException as error:
        Path(tar.name).unlink()
        if isinstance(error, OSError) and error.errno in disk.FULL:
            raise OSError(error.errno, error.strerror, tar.name) from None
        raise
    large = {name: found.status.st_size for name, found in files.items() if found.status.st_size > LARGE}
    return Bundle(
        Path(tar.name),
        sha256,
        size,
        tuple(files),
        large=large,
        skipped=listing.skipped,
        left_out=listing.left_out,
        missed=listing.missed,
    )


def _why_empty(folder: Path, listing: Listing) -> str:
    left_out = [f"{each.by}: {each}" for each in listing.left_out]
    lines = [*left_out, *(f"{name}: {why}" for name, why in listing.skipped.items())][:_MOST_NAMED]
    return "\n".join((f"there is no file to pack in {folder.resolve()}", *(f"  left out {line}" for line in lines)))


def _by_name(found: Mapping[str, Found]) -> dict[str, Found]:
    """Returns the files by their names in the bundle, in its order. Raises InvalidBundle."""
    named: dict[str, Found] = {}
    for raw, file in found.items():
        name = unicodedata.normalize("NFC", raw)
        if name in named:
            raise InvalidBundle(f"two files have the name {name!r}, which they spell in different characters")
        named[name] = file
    files = dict(sorted(named.items(), key=lambda item: os.fsencode(item[0])))
    known = Names(MAX_BUNDLE_FILES)
    for name in files:
        known.add(name)
    return files


def _require(folder: Path, needed: str, files: Mapping[str, Found], skipped: Mapping[str, str]) -> None:
    if needed in files:
        return
    if needed in skipped:
        reason = skipped[needed]
    elif (folder / needed).exists():
        reason = f"git or {IGNORE_FILE} ignores it (--include has it packed), or it is in a folder that is never packed"
    else:
        raise ConfigError(f"there is no {needed} in {folder.resolve()}: change to the folder of your code")
    raise ConfigError(f"{needed} would not be in the bundle: {reason}")


def _check_size(files: Mapping[str, Found], most: int) -> None:
    sizes = {name: found.status.st_size for name, found in files.items()}
    total = sum(sizes.values())
    if total <= most:
        return
    largest = heapq.nlargest(_MOST_NAMED, sizes, key=lambda name: sizes[name])
    lines = "\n".join(f"  {terminal.size(sizes[name]):>10}  {name}" for name in largest)
    raise TooLarge(
        f"the folder has {terminal.size(total)} in {len(files)} files, and at most {terminal.size(most)} are packed."
        f" Name what the program does not need in {IGNORE_FILE}, or allow more with --max-size. The largest files:"
        f"\n{lines}"
    )


def _write(tar: IO[bytes], files: Mapping[str, Found]) -> tuple[str, int]:
    """Writes the tar. Returns its sha256 and its size."""
    digest, size = hashlib.sha256(), 0

    def write(data: bytes) -> None:
        nonlocal size
        tar.write(data)
        digest.update(data)
        size += len(data)

    for name, found in files.items():
        expected = found.status.st_size
        write(header(name, size=expected, executable=bool(found.status.st_mode & stat.S_IXUSR)))
        with _open(found.path) as file:
            left = expected
            while left and (chunk := file.read(min(left, _CHUNK))):
                write(chunk)
                left -= len(chunk)
        if left:
            raise _changed(found.path)
        write(padding(expected))
    write(END)
    return digest.hexdigest(), size


def _open(path: Path) -> IO[bytes]:
    """Opens a regular file. A link or FIFO that has taken its place is neither followed nor waited for."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    except FileNotFoundError:
        raise _changed(path) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _changed(path)
    return file


def _check_unchanged(files: Mapping[str, Found]) -> None:
    """Raises ConfigError if a file is not what it was when it was listed: the bundle might mix two states."""
    for found in files.values():
        try:
            now = found.path.stat(follow_symlinks=False)
        except OSError:
            raise _changed(found.path) from None
        if _identity(now) != _identity(found.status):
            raise _changed(found.path)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


def _changed(path: Path) -> ConfigError:
    return ConfigError(f"{path} changed while it was packed: run the command again when nothing writes it")
