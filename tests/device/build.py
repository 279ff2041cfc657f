"""Builds the simulated device, once a machine: `python -P -m tests.device.build`.

It imports no torch, which takes seconds of a processor.
"""

import fcntl
import hashlib
from importlib.metadata import version
from importlib.util import find_spec
import os
from pathlib import Path
import shutil
import subprocess
import sys
import sysconfig

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
NAME = "torchyard_simulated_device"
FLAGS = [
    *("-std=c++20", "-O0", "-fPIC", "-w", "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={NAME}"),
    *("-DTORCH_API_INCLUDE_EXTENSION_H", "-D_GLIBCXX_USE_CXX11_ABI=1"),
]


def missing() -> str | None:
    """Returns why the device cannot be built here, or None."""
    if shutil.which("g++") is None:
        return "the simulated device needs g++, which is not installed"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "the simulated device needs the headers of Python, which are not installed"
    return None


def built() -> Path:
    """Returns the library, which is built if this version of it is not in the cache. Raises CalledProcessError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchyard" / "simulated-device"
    folder = cache / _digest()
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{NAME}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _build(library)
    return library


def _digest() -> str:
    content = hashlib.sha256(f"{version('torch')} {sys.version} {FLAGS}".encode())
    for source in (*SOURCES, *Path(__file__).parent.glob("*.h")):
        content.update(source.read_bytes())
    return content.hexdigest()[:16]


def _build(library: Path) -> None:
    # Torch's headers take most of the time, so that they are read once: all sources are one unit.
    unit = "".join(f'#include "{source}"\n' for source in SOURCES)
    torch = _torch()
    headers = (torch / "include", torch / "include/torch/csrc/api/include", sysconfig.get_path("include"))
    includes = [f"-isystem{folder}" for folder in headers]
    partial = library.with_suffix(".partial")
    libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch", "-ltorch_cpu", "-ltorch_python"]
    command = ["g++", "-shared", *FLAGS, *includes, "-x", "c++", "-", *libraries, "-o", str(partial)]
    subprocess.run(command, check=True, input=unit, text=True)
    partial.rename(library)


def _torch() -> Path:
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


if __name__ == "__main__":
    reason = missing()
    print(reason or built())  # noqa: T201 a command
