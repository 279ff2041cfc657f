"""Virtual environments without packages."""

from pathlib import Path
import subprocess
import sys


def make_venv(folder: Path, *, python: Path = Path(sys.base_prefix, "bin", "python3")) -> Path:
    """Makes a venv without any package, in a moment."""
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder
