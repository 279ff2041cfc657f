"""Puts what was exported in its place: whole or not at all, and over nothing that is there unless that is asked for."""

from collections.abc import Callable, Mapping
import contextlib
import os
from pathlib import Path
import secrets
import shutil

from torchyard.contract.errors import ExportError
from torchyard.host.recordfiles import sync_folder

Content = bytes | Mapping[str, bytes]
"""The bytes of a file, or those of each file in a folder."""


def refuse_taken(path: Path, content_names: frozenset[str] | None, *, force: bool) -> None:
    """Raises ExportError if `path` is taken. `content_names`: the files of a folder, None for a file.

    With `force`, a file may be replaced by a file, and a folder by a folder if it has no other files than these.
    """
    if not path.parent.is_dir():
        raise ExportError(f"{path.parent} is no folder: make it first")
    if not os.path.lexists(path):
        return
    if not force:
        raise ExportError(f"{path} is there already: choose another path, or replace it with --force")
    if content_names is None:
        if path.is_dir():
            raise ExportError(f"{path} is a folder: name a file")
    elif path.is_symlink() or not path.is_dir():
        raise ExportError(f"{path} is a file: name a folder")
    elif others := sorted({item.name for item in path.iterdir()} - content_names):
        raise ExportError(f"{path} has other files, such as {others[0]}: it is not replaced")


def place(path: Path, content: Content, *, force: bool, check: Callable[[Path], None]) -> None:
    """Writes `content` beside `path`, has it checked there, and gives it its name.

    Nothing is left and nothing is changed if it fails. Raises OSError, ExportError and what `check` raises.
    """
    names = None if isinstance(content, bytes) else frozenset(content)
    refuse_taken(path, names, force=force)
    aside = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        if isinstance(content, bytes):
            _write(aside, content)
        else:
            aside.mkdir()
            for name, part in content.items():
                _write(aside / name, part)
            sync_folder(aside)
        check(aside)
        refuse_taken(path, names, force=force)
        _rename(aside, path, force=force)
        sync_folder(path.parent)
    finally:
        _remove(aside)


def _write(path: Path, content: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = error.filename or str(path.parent)  # a write does not say where
        raise


def _rename(aside: Path, path: Path, *, force: bool) -> None:
    if aside.is_dir():
        return _rename_folder(aside, path)
    if force:
        aside.replace(path)
        return None
    try:
        os.link(aside, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise ExportError(f"{path} is there already: another program has just written it") from None
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
