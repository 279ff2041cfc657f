"""Writes files that only their owner can read."""

import os
from pathlib import Path
import secrets

from torchyard.host.recordfiles import sync_folder


def write_private(path: Path, text: str) -> None:
    """Replaces the file: a reader sees the old one or the new one. Others can never read it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def create_private(path: Path, text: str) -> bool:
    """Creates the file unless it exists: a reader sees all of it or nothing. Returns whether it is new.

    Durable when this returns. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True
