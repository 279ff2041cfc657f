"""Builds the simulated device, once a machine: `python -P -m tests.device.build`."""

import fcntl
import hashlib
import os
from pathlib import Path
import shutil
import subprocess
import sys
import sysconfig

import torch

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
NAME = "torchyard_simulated_device"
FLAGS = [
    *("-std=c++20", "-O0", "-fPIC", "-w", "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={NAME}"),
    *("-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
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
    content = hashlib.sha256(f"{torch.__version__} {sys.version} {FLAGS}".encode())
    for source in (*SOURCES, *Path(__file__).parent.glob("*.h")):
        content.update(source.read_bytes())
    return content.hexdigest()[:16]


def _build(library: Path) -> None:
    from torch.utils import cpp_extension  # slow, and warns where there is no CUDA

    # Torch's headers take most of the time, so that they are read once: all sources are one unit.
    unit = "".join(f'#include "{source}"\n' for source in SOURCES)
    folders = [f"-L{folder}" for folder in cpp_extension.library_paths()]
    partial = library.with_suffix(".partial")
    libraries = ["-lc10", "-ltorch", "-ltorch_cpu", "-ltorch_python"]
    command = ["g++", "-shared", *FLAGS, *_includes(), "-x", "c++", "-", *folders, *libraries, "-o", str(partial)]
    subprocess.run(command, check=True, input=unit, text=True)
    partial.rename(library)


def _includes() -> list[str]:
    from torch.utils import cpp_extension

    return [f"-isystem{folder}" for folder in (*cpp_extension.include_paths(), sysconfig.get_path("include"))]


if __name__ == "__main__":
    reason = missing()
    print(reason or built())  # noqa: T201 a command
