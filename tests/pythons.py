"""Runs the quick tests on every other supported Python of this machine: `python -m tests.pythons [PYTEST ARGUMENT]…`.

Each has an environment of its own, `.venv-pythons/VERSION`, with the versions of requirements-dev.lock: two minutes to
fill the first time, and little room beside the others, as uv links equal files. Says which Python it did not find.
Exits with 1 if a test failed.
"""

from collections.abc import Sequence
import os
from pathlib import Path
import subprocess
import sys

SUPPORTED = ("3.11", "3.12", "3.13")
ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / ".venv-pythons"


def main(arguments: Sequence[str]) -> int:
    found = {version: find(version) for version in SUPPORTED if version != _version(Path(sys.executable))}
    failed: list[str] = []
    for version, python in found.items():
        if python is not None:
            _say(f"Python {version}: {python}")
            tested = subprocess.run([_filled(version, python), "-m", "pytest", *arguments], cwd=ROOT, check=False)
            failed += [version] if tested.returncode != 0 else []
    for version, python in found.items():
        if python is None:
            _say(f"Python {version} was not found: neither python{version} in PATH nor pyenv has one that runs")
    if failed:
        _say(f"tests failed on Python {', '.join(failed)}")
    return 1 if failed else 0


def find(version: str) -> Path | None:
    """Returns an interpreter that runs: in PATH, where a shim of pyenv may be one that does not, or among pyenv's."""
    in_path = [Path(folder, f"python{version}") for folder in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    for python in (*in_path, *sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)):
        if _version(python) == version:
            return python
    return None


def _version(python: Path) -> str | None:
    """Returns the version of the interpreter, such as `3.12`; None if it does not run."""
    program = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _filled(version: str, python: Path) -> Path:
    """Returns the interpreter of the version's environment, which is brought to what the lock says."""
    folder = ENVIRONMENTS / version
    own, uv = folder / "bin" / "python", Path(sys.executable).with_name("uv")
    if _version(own) != version:
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", python, folder], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", own]
    subprocess.run([*install, "--require-hashes", "-r", ROOT / "requirements-dev.lock"], check=True)
    ours = ("-e", ROOT, "-e", ROOT / "deploy" / "server")
    subprocess.run([*install, "--no-deps", "--no-build-isolation", *ours], check=True)
    return own


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
