"""Writes files that only their owner can read."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replaces the file: a reader sees the old one or the new one. Others can never read it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
