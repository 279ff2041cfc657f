"""Finds which files of a folder go into a bundle, and what each of them is."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
import errno
import os
from pathlib import Path
import posixpath
import re
import stat

from torchyard.client.packing import git
from torchyard.client.packing.leftout import LeftOut, Tally
from torchyard.client.packing.rules import IGNORE_FILE, Rules
from torchyard.contract.bounds import MOST_LEFT_OUT
from torchyard.contract.errors import ConfigError
from torchyard.host.datadir import CHILDREN_LOCK, TOKEN_FILE

NEVER_PACKED = frozenset({".git", ".venv", "__pycache__", "node_modules", ".torchyard"})
"""Names of files and folders that are never packed, wherever they are."""
_PRIVATE = re.compile(r"\.env(?:rc|\..*)?", re.IGNORECASE)
"""Names of files that mostly hold passwords. They are packed only if a `!` line of IGNORE_FILE names them."""
_OF_SERVICE = "the data directory of a Torchyard service, with its token"
_WHY_PRIVATE = f"it may hold passwords; a line !NAME in {IGNORE_FILE} has it packed"


@dataclass(frozen=True, slots=True)
class Found:
    """A file to pack, as it was found. `path` is the regular file whose contents it gets."""

    path: str
    size: int
    mode: int
    device: int
    inode: int
    modified_ns: int

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> "Found":
        return cls(path, status.st_size, status.st_mode, status.st_dev, status.st_ino, status.st_mtime_ns)


@dataclass(frozen=True)
class Listing:
    """The files by their names in the bundle, as the file system has them, and what was left out and why.

    `missed` are paths of the folder that a program may look for in vain: the first few.
    """

    files: dict[str, Found] = field(default_factory=dict[str, Found])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    left_out: Sequence[LeftOut] = ()
    missed: Sequence[str] = ()


def list_files(
    folder: Path, *, asks_git: bool = True, include: Sequence[str] = (), mounted: Sequence[str] = ()
) -> Listing:
    """Lists the files of a folder that are packed: what git tracks or does not ignore; without git, all.

    `include`: paths and patterns of more files, which git may ignore. `mounted`: paths at which the program finds
    something else. Raises ConfigError.
    """
    return _Lister(folder, asks_git=asks_git, include=include, mounted=mounted).listing()


class _Lister:
    def __init__(self, folder: Path, *, asks_git: bool, include: Sequence[str], mounted: Sequence[str]) -> None:
        self._folder = folder.resolve()
        if not self._folder.is_dir():
            raise ConfigError(f"{self._folder} is not a folder")
        self._asks_git = asks_git
        self._mounted = tuple(f"{path}/" for path in mounted)
        self._rules = Rules(self._folder, include)
        self._tally = Tally(self._folder, NEVER_PACKED)
        self._files: dict[str, Found] = {}
        self._skipped: dict[str, str] = {}
        self._linked_folders: dict[str, Path] = {}
        self._data_dirs: tuple[str, ...] = ()
        self._has_links: dict[str, bool] = {}
        """Whether a folder of the folder is reached by a link, or is not there."""

    def listing(self) -> Listing:
        names = self._names(self._folder, "")
        self._data_dirs = self._find_data_dirs(names)
        for name, is_tracked in sorted(names.items()):
            if not NEVER_PACKED.isdisjoint(name.split("/")) or name.startswith((*self._mounted, *self._data_dirs)):
                continue
            wanted = self._rules.wants(name)
            if wanted is False:
                self._tally.add(name, ".torchyardignore")
            elif (private := _private_part(name)) is not None and not self._rules.wants_private(name):
                self._skipped[private] = _WHY_PRIVATE
            else:
                self._add(name, is_tracked=is_tracked)
        self._add_linked_folders()
        self._rules.check_included(self._files, self._skipped)
        others = [name for name, why in self._skipped.items() if why != _WHY_PRIVATE]
        missed = [*self._tally.paths(MOST_LEFT_OUT), *others][:MOST_LEFT_OUT]
        return Listing(self._files, self._skipped, self._tally.found(), missed)

    def _find_data_dirs(self, names: Collection[str]) -> tuple[str, ...]:
        """Returns the folders that hold the data of a service, and notes them.

        Raises ConfigError if the whole folder is one.
        """
        locked = (posixpath.dirname(name) for name in names if posixpath.basename(name) == CHILDREN_LOCK)
        holders = [folder for folder in locked if posixpath.join(folder, TOKEN_FILE) in names]
        if "" in holders:
            raise ConfigError(f"{self._folder} is {_OF_SERVICE}: name the folder of your program")
        self._skipped |= dict.fromkeys(holders, f"it is {_OF_SERVICE}")
        return tuple(f"{folder}/" for folder in holders)

    def _names(self, folder: Path, prefix: str) -> dict[str, bool]:
        """Returns the names of files, and whether git tracks each."""
        if not self._asks_git or not git.in_work_tree(folder):
            return dict.fromkeys((prefix + name for name in self._walk(folder)), False)
        tracked = git.tracked(folder)
        found = {name: name in tracked for name in tracked | git.untracked(folder)}
        names: dict[str, bool] = dict.fromkeys(self._brought_back(folder, prefix), False)
        for name, is_tracked in found.items():
            path = folder / name
            if not path.is_symlink() and path.is_dir():
                names |= self._names_of_inner_repository(path, f"{prefix}{name.rstrip('/')}")
            else:
                names[prefix + name] = is_tracked
        return names

    def _brought_back(self, folder: Path, prefix: str) -> list[str]:
        """Returns the files that git ignores and a rule has packed, and notes the others."""
        wanted: list[str] = []
        for entry in git.ignored(folder):
            name = prefix + entry
            if not NEVER_PACKED.isdisjoint(name.rstrip("/").split("/")):
                continue
            files = self._files_of(name) if self._rules.bring_back else []
            chosen = [file for file in files if self._rules.wants(file)]
            wanted += chosen
            for other in sorted({*files} - {*chosen}) if chosen else [name]:
                self._leave_out(other)
        return wanted

    def _files_of(self, name: str) -> list[str]:
        return [name + below for below in self._walk(self._folder / name)] if name.endswith("/") else [name]

    def _leave_out(self, name: str) -> None:
        """Notes what git ignores: what could not be packed in any case with that reason."""
        if f"{name.rstrip('/')}/".startswith(self._mounted):
            return
        path = Path(os.path.realpath(self._folder / name))
        if (private := _private_part(name)) is not None:
            self._skipped[private] = _WHY_PRIVATE
        elif not path.is_relative_to(self._folder):
            self._skipped[name] = _outside(path)
        else:
            self._tally.add(name, ".torchyardignore" if self._rules.wants(name) is False else ".gitignore")

    def _names_of_inner_repository(self, path: Path, name: str) -> dict[str, bool]:
        if path.name in NEVER_PACKED:
            return {}
        if not (path / ".git").exists():
            self._skipped[name] = "it is a submodule that is not checked out"
            return {}
        return self._names(path, f"{name}/")

    def _add(self, name: str, *, is_tracked: bool) -> None:
        if (plain := self._plain_file(name)) is not None:
            self._files[name] = plain
            return
        listed = self._folder / name
        try:
            path = Path(os.path.realpath(listed, strict=True))
            status = path.stat()
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                raise ConfigError(f"{listed} cannot be read: {error.strerror}") from None
            if os.path.islink(listed):  # noqa: PTH114 - is_symlink raises for a name below a file
                self._skip(name, "it is a link to nothing", is_tracked=is_tracked)
            return  # deleted, but still in git's index
        wrong = self._why_not(path, status)
        inside = os.path.relpath(path, self._folder)
        if wrong is None and _private_part(inside) is not None and not self._rules.wants_private(inside):
            self._skipped[name] = f"it is a link to {inside}, which is left out"
        elif wrong is not None:
            self._skip(name, wrong, is_tracked=is_tracked)
        elif stat.S_ISDIR(status.st_mode):
            self._linked_folders[name] = path
        else:
            self._files[name] = Found.of(str(path), status)

    def _plain_file(self, name: str) -> Found | None:
        """Returns the regular file of that name; None if there is none, or a folder above it is a link."""
        folder = posixpath.dirname(name)
        has_links = self._has_links.get(folder)
        if has_links is None:
            whole = os.path.join(self._folder, folder) if folder else str(self._folder)  # noqa: PTH118 - many
            has_links = self._has_links[folder] = os.path.realpath(whole) != whole
        if has_links:
            return None
        path = f"{self._folder}/{name}"
        try:
            status = os.lstat(path)
        except OSError:
            return None
        return Found.of(path, status) if stat.S_ISREG(status.st_mode) else None

    def _why_not(self, path: Path, status: os.stat_result) -> str | None:
        if not path.is_relative_to(self._folder):
            return _outside(path)
        if not NEVER_PACKED.isdisjoint(path.relative_to(self._folder).parts):
            return f"it is a link to {path.relative_to(self._folder)}, which is never packed"
        if f"{path.relative_to(self._folder)}/".startswith(self._data_dirs):
            return f"it is a link into {_OF_SERVICE}"
        kinds = ((stat.S_ISSOCK, "socket"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
        return next((f"it is a {kind}" for test, kind in kinds if test(status.st_mode)), None)

    def _skip(self, name: str, reason: str, *, is_tracked: bool) -> None:
        if is_tracked:
            raise ConfigError(
                f"{name} is in git, but cannot be packed: {reason}. Remove it, or name it in {IGNORE_FILE}"
            )
        self._skipped[name] = reason

    def _add_linked_folders(self) -> None:
        """Adds the files below each linked folder once more, below the link."""
        listed = dict(self._files)
        for link, target in self._linked_folders.items():
            inside = target.relative_to(self._folder).as_posix()
            prefix = "" if inside == "." else f"{inside}/"
            for name, found in listed.items():
                copy = f"{link}/{name.removeprefix(prefix)}"
                if name.startswith(prefix) and self._rules.wants(copy) is not False:
                    self._files[copy] = found

    def _walk(self, folder: Path) -> Iterator[str]:
        """Yields every file and every link below the folder, and notes which folders are never packed of one that is
        packed whole. Raises ConfigError for a folder that cannot be read.
        """

        def refuse(error: OSError) -> None:
            raise ConfigError(f"{error.filename} cannot be read: {error.strerror}")

        for root, folders, files in os.walk(folder, onerror=refuse):
            links = [name for name in folders if (Path(root) / name).is_symlink()]
            inside = Path(root).relative_to(folder).as_posix()
            prefix = "" if inside == "." else f"{inside}/"
            never = [name for name in folders if name in NEVER_PACKED and name not in links]
            for name in () if self._asks_git else never:
                self._tally.add(f"{prefix}{name}/", "never packed")
            folders[:] = [name for name in folders if name not in NEVER_PACKED and name not in links]
            yield from (prefix + name for name in (*files, *links))


def _private_part(name: str) -> str | None:
    """Returns the name up to the first part that is private, or None."""
    parts = name.split("/")
    found = next((number for number, part in enumerate(parts, start=1) if _PRIVATE.fullmatch(part)), None)
    return None if found is None else "/".join(parts[:found])


def _outside(path: Path) -> str:
    return f"it is a link to {path}, outside the folder"
