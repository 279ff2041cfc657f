"""Small file systems for tests, which can be filled."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
import subprocess

import pytest


@contextmanager
def mounted(folder: Path, *, kibibytes: int) -> Generator[None]:
    """A file system of that size at `folder`, in memory. Skips the test where this user may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
