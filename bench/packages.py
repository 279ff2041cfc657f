"""The time to install a job's own packages, beside uv by hand: rows of `python -m bench.own_code`.

The packages come from an index on this host. uv has them in its cache after the first job. Each further job names the
same packages in a file with another digest, so that the worker makes a new environment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import subprocess
import sys
import time

import uv

from bench.service import Service, script
from bench.table import Row
from bench.watching import watch
from tests.worker.packages.index import Index
from torchyard.client import Client

PACKAGES, MODULES, FUNCTIONS = 30, 12, 20
REPEATS = 5
_FUNCTION = """
def step_{number}(values, rate={number}):
    \"\"\"Returns the values after one step.\"\"\"
    moved = [value - rate * {number} for value in values if value is not None]
    return {{"moved": moved, "total": sum(moved), "count": len(moved)}}
"""
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")
_SCRIPT = "import time, package_0_parts.module_0\nprint(time.time(), flush=True)\n"


@dataclass(frozen=True)
class Installed:
    """One job, in seconds."""

    installing: float
    """From the first file of the installation to the mark of the whole environment."""
    printed: float
    """From POST to the program's first line, by its own clock."""


def fill(index: Index) -> None:
    """Adds packages as many small ones are: a dozen modules, each of a few kilobytes."""
    text = "".join(_FUNCTION.format(number=number) for number in range(FUNCTIONS))
    for number in range(PACKAGES):
        modules = {f"package_{number}_parts/module_{part}.py": f"PART = {part}\n{text}" for part in range(MODULES)}
        index.add(f"package_{number}", files=modules)


def measure(service: Service, client: Client, index: Index, folder: Path) -> Iterator[Row]:
    """The service installs from the index, which `fill` has filled."""
    _install(service, client, "first")
    downloads = _only(service.data, "environments/*/.uv/*")
    ours: list[Installed] = []
    theirs: list[float] = []
    for number in range(REPEATS):
        ours.append(_install(service, client, f"again-{number}"))
        theirs.append(_by_hand(index, folder / "by-hand", downloads))
    yield Row(
        f"an environment of {PACKAGES} packages with {PACKAGES * MODULES} modules, from a warm cache",
        "s",
        [each.installing for each in ours],
        peer="uv venv and uv pip install, same cache",
        theirs=theirs,
        at_most=4.0,
    )
    yield Row("– POST to the program's first line, by its clock", "s", [each.printed for each in ours])
    yield _cached(service, client)


def _cached(service: Service, client: Client) -> Row:
    """Of a job whose environment is there, in turns with torchrun by hand in the same environment."""
    code = service.data.parent / "code" / "packages-cached"
    spec = script(code, _SCRIPT)
    spec["config"]["requirements"] = "requirements.txt"
    (code / "requirements.txt").write_text(f"# cached\n{_requirements()}")
    before = set(_environments(service))
    watch(service, client, spec)
    (made,) = set(_environments(service)) - before
    command = [_only(made.parent, "*/venv") / "bin" / "python", *_TORCHRUN, code / "train.py"]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(REPEATS):
        watched = watch(service, client, spec)
        ours.append(min(map(float, watched.lines)) - watched.submitted)
        began = time.time()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        theirs.append(float(said) - began)
    what = "POST to the first line by the program's clock, environment made before"
    return Row(what, "s", ours, peer="torchrun by hand, in that environment", theirs=theirs, ratio_at_most=1.2)


def _install(service: Service, client: Client, name: str) -> Installed:
    """Runs a job whose environment is new to the worker."""
    code = service.data.parent / "code" / f"packages-{name}"
    spec = script(code, _SCRIPT)
    spec["config"]["requirements"] = "requirements.txt"
    (code / "requirements.txt").write_text(f"# {name}\n{_requirements()}")
    before = set(_environments(service))
    watched = watch(service, client, spec)
    (made,) = set(_environments(service)) - before
    began = _only(made.parent, "*/input").stat().st_mtime
    return Installed(made.stat().st_mtime - began, min(map(float, watched.lines)) - watched.submitted)


def _by_hand(index: Index, folder: Path, downloads: Path) -> float:
    """Returns the seconds of uv, which compiles the modules as the worker has it do."""
    packages = folder / "requirements.txt"
    folder.mkdir()
    packages.write_text(_requirements())
    env = {**os.environ, "UV_CACHE_DIR": str(downloads), "UV_DEFAULT_INDEX": index.url, "UV_NO_CONFIG": "1"}
    venv, program = folder / "venv", uv.find_uv_bin()
    began = time.perf_counter()
    for command in (
        ["venv", "--quiet", "--no-project", "--python", sys.executable, venv],
        ["pip", "install", "--quiet", "--compile-bytecode", "--python", venv / "bin" / "python", "-r", packages],
    ):
        subprocess.run([program, *command], env=env, check=True)
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    return took


def _requirements() -> str:
    return "".join(f"package-{number}\n" for number in range(PACKAGES))


def _environments(service: Service) -> Iterator[Path]:
    """Yields the marks of whole environments."""
    return service.data.glob("environments/*/*/complete")


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found
