"""The download size of the client, and the time of its import: `python -m bench.install`.

The peer of the download is the OpenAI client. pip downloads its wheels in the same run and does not install them. The
peer of the import is a Python that imports nothing.
"""

from collections.abc import Iterator
from pathlib import Path
import subprocess
import sys
import time

from bench import table
from bench.service import scratch
from bench.table import Row

REPEATS = 15
ROOT = Path(__file__).parent.parent


def measure() -> Iterator[Row]:
    with scratch() as folder:
        ours = [_megabytes(folder / "torchyard", str(_wheel(folder)))]
        theirs = [_megabytes(folder / "openai", "openai")]
    yield Row("wheels of `pip install torchyard`", "MB", ours, peer="openai", theirs=theirs, at_most=12)
    imported: list[float] = []
    nothing: list[float] = []
    for _ in range(REPEATS):
        imported.append(_seconds("import torchyard"))
        nothing.append(_seconds("pass"))
    peer = "python -c pass"
    yield Row("`import torchyard`, a whole process", "s", imported, peer=peer, theirs=nothing, at_most=0.15)


def _wheel(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "uv",
        "build",
        "--no-build-isolation",
        "--out-dir",
        str(folder / "dist"),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _megabytes(folder: Path, requirement: str) -> float:
    """The wheels of the requirement and of all that it depends on, in millions of bytes."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", str(folder)]
    subprocess.run([*command, "--disable-pip-version-check", requirement], check=True)
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def _seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    table.main(measure)
