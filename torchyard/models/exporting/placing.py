"""Puts what was exported in its place: whole or not at all, and over nothing that is there unless that is asked for."""

from collections.abc import Callable, Collection, Mapping
import contextlib
from fnmatch import fnmatchcase
import os
from pathlib import Path
import secrets
import shutil

from torchyard.contract.errors import ExportError
from torchyard.host.recordfiles import sync_folder

Content = bytes | Mapping[str, bytes] | Callable[[Path], None]
"""The bytes of a file, those of each file in a folder, or what writes the file, or the files into the empty folder."""


def refuse_taken(path: Path, names: Collection[str] | None, *, force: bool) -> None:
    """Raises ExportError if `path` is taken. `names`: patterns of the files that a folder has, None for a file.

    With `force`, a file may be replaced by a file, and a folder by a folder if it has no other files than these.
    """
    if not path.parent.is_dir():
        raise ExportError(f"{path.parent} is not a folder: make it first")
    if not os.path.lexists(path):
        return
    if not force:
        raise ExportError(f"{path} exists: choose another path, or replace it with --force")
    if names is None:
        if path.is_dir():
            raise ExportError(f"{path} is a folder: name a file")
    elif path.is_symlink() or not path.is_dir():
        raise ExportError(f"{path} is a file: name a folder")
    elif others := sorted(item.name for item in path.iterdir() if not _is_named(item.name, names)):
        raise ExportError(f"{path} has other files, such as {others[0]}: it is not replaced")


def place(
    path: Path, content: Content, *, names: Collection[str] | None, force: bool, check: Callable[[Path], None]
) -> None:
    """Writes `content` beside `path`, has it checked there, and gives it its name. `names`: see `refuse_taken`.

    Nothing is left and nothing is changed if it fails. Raises OSError, ExportError and what `check` raises.
    """
    refuse_taken(path, names, force=force)
    aside = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        if names is not None:
            aside.mkdir()
        _write(aside, content)
        check(aside)
        refuse_taken(path, names, force=force)
        _rename(aside, path, force=force)
        sync_folder(path.parent)
    finally:
        _remove(aside)


def _is_named(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _write(aside: Path, content: Content) -> None:
    """Writes a file, or the files of a folder. They are on the disk when it returns."""
    try:
        if isinstance(content, bytes):
            aside.write_bytes(content)
        elif isinstance(content, Mapping):
            for name, part in content.items():
                (aside / name).write_bytes(part)
        else:
            content(aside)
        for file in aside.iterdir() if aside.is_dir() else [aside]:
            _sync(file)
        if aside.is_dir():
            sync_folder(aside)
    except OSError as error:
        error.filename = error.filename or str(aside.parent)  # a write does not say where
        raise


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _rename(aside: Path, path: Path, *, force: bool) -> None:
    if aside.is_dir():
        return _rename_folder(aside, path)
    if force:
        aside.replace(path)
        return None
    try:
        os.link(aside, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise ExportError(f"{path} exists: another program has just written it") from None
    except OSError:  # a file system without links
        aside.rename(path)
    return None


def _rename_folder(aside: Path, path: Path) -> None:
    """Renames a folder. An earlier one is back in its place if that fails."""
    if not path.exists():
        aside.rename(path)
        return
    earlier = path.with_name(f"{aside.name}.earlier")
    path.rename(earlier)
    try:
        aside.rename(path)
    except BaseException:
        earlier.rename(path)
        raise
    shutil.rmtree(earlier)


def _remove(path: Path) -> None:
    if path.is_dir():
        return shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    return None
