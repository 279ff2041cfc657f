"""Programs of an older commit: an interpreter that imports them, and workers that it runs."""

from collections.abc import Generator
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import subprocess
import sys
import sysconfig
import tarfile

ROOT = Path(__file__).parents[2]


def git(*arguments: str) -> str:
    """Returns the output of git in this checkout; empty if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def python_of(commit: str, folder: Path) -> Path:
    """Makes an interpreter that imports the project of `commit`, with the packages of the current environment."""
    archive = folder / "source.tar"
    assert git("archive", f"--output={archive}", commit, "--", "torchyard", "store", "worker", "trainer", "api") == ""
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # The editable install of today's project is a .pth file, which is not read from a folder that one names.
    (site / "older.pth").write_text(f"{folder / 'source'}\n{sysconfig.get_path('purelib')}\n")
    python = folder / "venv" / "bin" / "python"
    found = subprocess.run(
        [python, "-P", "-c", "import worker; print(worker.__file__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(found.stdout.strip()).is_relative_to(folder), "today's project came first"
    return python


@contextmanager
def worker(
    python: Path | str, folder: Path, *, database: str, redis: str, slots: int = 1, end: signal.Signals = signal.SIGTERM
) -> Generator[subprocess.Popen[bytes]]:
    """Runs a worker on the data directory `folder`, sends it `end` afterwards. It may run code beside it."""
    folder.mkdir(exist_ok=True)
    settings = {"DATA_DIR": folder, "DATABASE_URL": database, "REDIS_URL": redis, "CPU_SLOTS": slots}
    env = {**os.environ, **{f"TORCHYARD_{name}": str(value) for name, value in settings.items()}}
    env["TORCHYARD_ALLOW_PATHS"] = str(folder.parent / "code")
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([python, "-P", "-m", "worker"], env=env, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(end)
        expected = -signal.SIGKILL if end is signal.SIGKILL else 0
        assert process.wait(60) == expected, (folder / "log").read_text()
