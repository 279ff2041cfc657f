"""Makes a bundle of a folder's files, and notices if one of them changes meanwhile."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
import heapq
import os
from pathlib import Path
from typing import Self
import unicodedata

from torchyard.client.packing.contents import Contents, check_unchanged
from torchyard.client.packing.leftout import LeftOut
from torchyard.client.packing.listing import Found, Listing, list_files
from torchyard.client.packing.rules import IGNORE_FILE
from torchyard.contract.bundles.names import MAX_BUNDLE_FILES, MAX_PACKED_BYTES, Names, bundle_url
from torchyard.contract.errors import ConfigError, InvalidBundle, TooLarge
from torchyard.host import terminal

LARGE = 10 << 20
"""A file of more bytes is listed as large: it may be data, which is better not sent with each change of the code."""

_MOST_NAMED = 10


@dataclass(frozen=True)
class Bundle:
    """A packed folder. Its tar is read out of the folder's files while it is sent, unless it is small.

    `large` has the bytes of each large file, and `skipped` the reason for which a file cannot be packed. `left_out` is
    what git or the folder's own rules leave out, and `missed` what a program may look for in vain: the first few paths.
    """

    contents: Contents
    files: Sequence[str]
    large: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: Sequence[LeftOut] = ()
    missed: Sequence[str] = ()

    @property
    def sha256(self) -> str:
        return self.contents.sha256

    @property
    def size(self) -> int:
        """The bytes of the tar."""
        return self.contents.size

    @property
    def parts(self) -> bytes:
        """The parts of the tar, as `torchyard.contract.bundles.parts` has them."""
        return self.contents.parts

    @property
    def url(self) -> str:
        """What names the bundle in a job spec."""
        return bundle_url(self.sha256)

    def read(self, start: int = 0, end: int | None = None) -> Generator[bytes]:
        """Yields the bytes of the tar from `start` to `end`. Raises ConfigError if a file has changed since."""
        return self.contents.read(start, end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of what is held."""
        self.contents.close()


def pack(
    folder: str | Path = ".",
    *,
    max_size: int = MAX_PACKED_BYTES,
    needed: str | None = None,
    asks_git: bool = True,
    include: Sequence[str] = (),
    mounted: Sequence[str] = (),
) -> Bundle:
    """Packs what git tracks or does not ignore in the folder; without git, or if it is not asked, all its files.

    `include` are paths and patterns of files that are packed although git ignores them; so are those that a `!` line of
    `.torchyardignore` names. Its other lines name what is left out; `.env` files are, unless a `!` line names them. The
    same files give the same bundle on every machine. What lies at a path of `mounted` is not packed.

    Raises ConfigError if a file cannot be read or changes meanwhile, if `needed` is not among the files, if a path of
    `include` names none, or if there are none where git is not asked; InvalidBundle for names that not every machine
    can have, and TooLarge for more than `max_size` bytes.
    """
    folder = Path(folder)
    listing = list_files(folder, asks_git=asks_git, include=include, mounted=mounted)
    files = _by_name(listing.files)
    if not files and not asks_git:
        raise ConfigError(_why_empty(folder, listing))
    if needed is not None:
        _require(folder, needed, files, listing.skipped)
    _check_size(files, max_size)
    contents = Contents(files)
    check_unchanged(files)
    return Bundle(
        contents,
        tuple(files),
        large={name: found.size for name, found in files.items() if found.size > LARGE},
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
    sizes = {name: found.size for name, found in files.items()}
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
