"""Other Pythons of this machine than the one that runs the tests."""

from pathlib import Path
import shutil
import subprocess
import sys


def find(version: str) -> Path | None:
    """Returns the interpreter of a version such as `3.10`, beside this Python's own installation or on PATH."""
    name = f"python{version}"
    beside = sorted(Path(sys.base_prefix).parent.glob(f"*/bin/{name}"))
    found = [str(path) for path in beside] + [path for path in [shutil.which(name)] if path is not None]
    return next((Path(path) for path in found if _is(path, version)), None)


def make_venv(folder: Path, *, python: Path = Path(sys.base_prefix, "bin", "python3")) -> Path:
    """Makes a venv without any package, in a moment."""
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def _is(path: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version
