"""Finds which files of a folder go into a bundle, and what each of them is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
import errno
import os
from pathlib import Path
import re
import stat
from typing import TypeAlias

from torchyard.client.packing import git
from torchyard.contract.errors import ConfigError

IGNORE_FILE = ".torchyardignore"
"""A file of the folder, in the syntax of .gitignore. What it matches is not packed."""
NEVER_PACKED = frozenset({".git", ".venv", "__pycache__", "node_modules", ".torchyard"})
"""Names of files and folders that are never packed, wherever they are."""
_PRIVATE = re.compile(r"\.env(?:rc|\..*)?", re.IGNORECASE)
"""Names of files that mostly hold passwords. They are packed only if a `!` line of IGNORE_FILE names them."""
_WHY_PRIVATE = f"it may hold passwords; a line !NAME in {IGNORE_FILE} has it packed"


_Rules: TypeAlias = Callable[[str], bool | None]
"""Whether a name is ignored. False: a `!` line names it. None: no line does."""


@dataclass(frozen=True)
class Found:
    """A file to pack. `path` is the regular file whose contents it gets; `status` is what was found there."""

    path: Path
    status: os.stat_result


@dataclass(frozen=True)
class Listing:
    """The files by their names in the bundle, as the file system has them, and what was left out and why."""

    files: dict[str, Found] = field(default_factory=dict[str, Found])
    skipped: dict[str, str] = field(default_factory=dict[str, str])


def list_files(folder: Path) -> Listing:
    """Lists the files of a folder that are packed: what git tracks or does not ignore; without git, all.

    Raises ConfigError.
    """
    return _Lister(folder).list()


class _Lister:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._listing = Listing()
        self._linked_folders: dict[str, Path] = {}

    def list(self) -> Listing:
        if not self._folder.is_dir():
            raise ConfigError(f"{self._folder} is not a folder")
        ignored = _ignored(self._folder)
        for name, is_tracked in sorted(self._names(self._folder, "").items()):
            if not NEVER_PACKED.isdisjoint(name.split("/")) or ignored(name):
                continue
            if (private := _private_part(name)) is not None and ignored(name) is None:
                self._listing.skipped[private] = _WHY_PRIVATE
            else:
                self._add(name, ignored, is_tracked=is_tracked)
        self._add_linked_folders(ignored)
        return self._listing

    def _names(self, folder: Path, prefix: str) -> dict[str, bool]:
        """Returns the names of files, and whether git tracks each."""
        if not git.in_work_tree(folder):
            return dict.fromkeys((prefix + name for name in _walk(folder)), False)
        tracked = git.tracked(folder)
        found = {name: name in tracked for name in tracked | git.untracked(folder)}
        names: dict[str, bool] = {}
        for name, is_tracked in found.items():
            path = folder / name
            if not path.is_symlink() and path.is_dir():
                names |= self._names_of_inner_repository(path, f"{prefix}{name.rstrip('/')}")
            else:
                names[prefix + name] = is_tracked
        return names

    def _names_of_inner_repository(self, path: Path, name: str) -> dict[str, bool]:
        if path.name in NEVER_PACKED:
            return {}
        if not (path / ".git").exists():
            self._listing.skipped[name] = "it is a submodule that is not checked out"
            return {}
        return self._names(path, f"{name}/")

    def _add(self, name: str, ignored: _Rules, *, is_tracked: bool) -> None:
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
        if wrong is None and _private_part(inside) is not None and ignored(inside) is None:
            self._listing.skipped[name] = f"it is a link to {inside}, which is left out"
        elif wrong is not None:
            self._skip(name, wrong, is_tracked=is_tracked)
        elif stat.S_ISDIR(status.st_mode):
            self._linked_folders[name] = path
        else:
            self._listing.files[name] = Found(path, status)

    def _why_not(self, path: Path, status: os.stat_result) -> str | None:
        if not path.is_relative_to(self._folder):
            return f"it is a link to {path}, outside the folder"
        if not NEVER_PACKED.isdisjoint(path.relative_to(self._folder).parts):
            return f"it is a link to {path.relative_to(self._folder)}, which is never packed"
        kinds = ((stat.S_ISSOCK, "socket"), (stat.S_ISFIFO, "FIFO"), (stat.S_ISCHR, "device"), (stat.S_ISBLK, "device"))
        return next((f"it is a {kind}" for test, kind in kinds if test(status.st_mode)), None)

    def _skip(self, name: str, reason: str, *, is_tracked: bool) -> None:
        if is_tracked:
            raise ConfigError(
                f"{name} is in git, but cannot be packed: {reason}. Remove it, or name it in {IGNORE_FILE}"
            )
        self._listing.skipped[name] = reason

    def _add_linked_folders(self, ignored: _Rules) -> None:
        """Adds the files below each linked folder once more, below the link."""
        listed = dict(self._listing.files)
        for link, target in self._linked_folders.items():
            inside = target.relative_to(self._folder).as_posix()
            prefix = "" if inside == "." else f"{inside}/"
            for name, found in listed.items():
                copy = f"{link}/{name.removeprefix(prefix)}"
                if name.startswith(prefix) and not ignored(copy):
                    self._listing.files[copy] = found


def _private_part(name: str) -> str | None:
    """Returns the name up to the first part that is private, or None."""
    parts = name.split("/")
    found = next((number for number, part in enumerate(parts, start=1) if _PRIVATE.fullmatch(part)), None)
    return None if found is None else "/".join(parts[:found])


def _ignored(folder: Path) -> _Rules:
    """Returns what the folder's .torchyardignore says of a name."""
    path = folder / IGNORE_FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return lambda name: None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    from pathspec import GitIgnoreSpec

    try:
        rules = GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return lambda name: rules.check_file(name).include


def _walk(folder: Path) -> Iterator[str]:
    """Yields every file and every link below the folder. Raises ConfigError for a folder that cannot be read."""

    def refuse(error: OSError) -> None:
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}")

    for root, folders, files in os.walk(folder, onerror=refuse):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in NEVER_PACKED and name not in links]
        inside = Path(root).relative_to(folder)
        yield from ((inside / name).as_posix() for name in (*files, *links))
